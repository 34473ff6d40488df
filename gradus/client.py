"""`RewardClient` sends submissions to grading services and returns verdicts and faults, in order,
within a deadline.

It never invents a reward and raises only for misuse: a submission without a verdict in time is
returned as `Faulted`, whose message names the service and what to start. A fault that a service
reports is final, because workers have already retried it; only a `queue` fault is retried, up to
`MAX_DEFECTS` times.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from gradus.contract import (
    DEFAULT_DEADLINE_S,
    MAX_BATCH,
    MAX_DEADLINE_S,
    RESULT,
    Faulted,
    Graded,
    GraderName,
    Submission,
    build_faulted,
    compute_job_id,
    get_submission_class,
    replace_id,
)
from gradus.descriptions import (
    GraderDescription,
    GraderInfo,
    GraderList,
    check_name,
    grader_named,
)
from gradus.errors import FaultKind, Misuse, QueueFault, UnknownGrader
from gradus.request_failures import RequestFailure, describe_failure
from gradus.validation import convert_validation_error

AnswerT = TypeVar("AnswerT", bound=BaseModel)
OnResult = Callable[[int, Graded | Faulted], None]

MAX_DEFECTS = 3
"""Responses with status 500 after which a batch fails: another process may not have the defect.
Identical work is done once, so a retry is safe."""
MAX_BODY_BYTES = 16 * 2**20
"""Size at which a batch is cut, well below the service's default limit of 64 MiB."""
CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 30.0
"""Seconds without a byte after which a service counts as hanging; a working one sends an empty line
every few seconds."""
SHUN_S = 10.0  # seconds for which a URL that failed is tried last
MAX_BACKOFF_S = 8.0


@dataclass(frozen=True, slots=True)
class _Item:
    """A submission, encoded once. Items with the same `key`, a content hash, have the same
    result."""

    id: str
    key: str
    body: bytes


@dataclass(slots=True)
class _Connections:
    """The connections of one event loop and the work that is in flight on them."""

    http: httpx.AsyncClient
    slots: asyncio.Semaphore
    # Results by content hash. None: the call that sent the request gave up, so a call with time
    # left sends it again.
    in_flight: dict[str, asyncio.Future[Graded | Faulted | None]] = field(default_factory=dict)
    users: int = 0


class RewardClient:
    """Grades submissions on one or several services; safe to use from any event loop, also one
    after the other.

    Connections live as long as calls are running on a loop, or as long as an `async with` block
    that was entered there.
    """

    def __init__(
        self,
        urls: str | Sequence[str] = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        batch_size: int = 64,
        max_connections: int = 16,
        transport: httpx.AsyncBaseTransport | None = None,
        attempts: int | None = None,
        backoff_s: float = 0.25,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Requests are retried until the deadline, or until `attempts` tries per batch have failed.

        Only the deadline bounds retries after status 429. After `silence_s` seconds without a byte
        the next service is tried.

        Raises Misuse for a URL or a size that cannot work.
        """
        if isinstance(urls, str):
            urls = [urls]
        self._urls = [url.rstrip("/") for url in urls]
        if not self._urls:
            raise Misuse("RewardClient needs at least one URL")
        for url in self._urls:
            try:
                good = httpx.URL(url).scheme in ("http", "https") and bool(httpx.URL(url).host)
            except httpx.InvalidURL:
                good = False
            if not good:
                raise Misuse(f"{url!r} is not a URL such as http://127.0.0.1:8000")
        self._url_text = ", ".join(self._urls)
        has_attempts = attempts is None or attempts >= 1
        if not (
            1 <= batch_size <= MAX_BATCH and max_connections >= 1 and has_attempts and silence_s > 0
        ):
            raise Misuse(
                f"batch_size must be 1 to {MAX_BATCH}, max_connections and attempts at least 1,"
                " silence_s > 0"
            )
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise Misuse("api_key contains characters that no HTTP header can carry")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._batch_size = batch_size
        self._max_connections = max_connections
        self._transport = transport
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._silence_s = silence_s
        # Reading the system's certificates takes longer than a request: once per client, and only
        # for https.
        self._verify: ssl.SSLContext | bool = False
        if any(url.startswith("https:") for url in self._urls):
            self._verify = httpx.create_ssl_context()
        self._turn = itertools.count()
        self._failed_at: dict[str, float] = {}
        self._opened: dict[asyncio.AbstractEventLoop, _Connections] = {}

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if loop not in self._opened:
            http = httpx.AsyncClient(
                headers=self._headers,
                transport=self._transport,
                verify=self._verify,
                timeout=httpx.Timeout(self._silence_s, connect=CONNECT_TIMEOUT_S, pool=None),
                limits=httpx.Limits(max_connections=self._max_connections + 1),
            )
            self._opened[loop] = _Connections(http, asyncio.Semaphore(self._max_connections))
        self._opened[loop].users += 1
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        # Connections are closed with their last user: one kept for later would belong to a loop
        # that may be closed.
        loop = asyncio.get_running_loop()
        self._opened[loop].users -= 1
        if not self._opened[loop].users:
            await self._opened.pop(loop).http.aclose()

    async def grade(
        self,
        grader: str,
        submissions: Sequence[Submission | Mapping[str, Any]],
        *,
        rubric: str | None = None,
        deadline_s: float = DEFAULT_DEADLINE_S,
        on_result: OnResult | None = None,
    ) -> list[Graded | Faulted]:
        """Return one result per submission, in order, within `deadline_s` for the whole call.

        `on_result` is called with (index, result) once for each, as it arrives. Raises Misuse for
        submissions or options that the contract refuses; everything else that goes wrong is a
        `Faulted` in the list.
        """
        name = check_name(grader)
        if not 0 < deadline_s <= MAX_DEADLINE_S:
            raise Misuse(
                f"deadline_s must be over 0 and at most {MAX_DEADLINE_S:.0f}, not {deadline_s}"
            )
        items = encode_submissions(name, submissions, rubric or "")
        deadline = asyncio.get_running_loop().time() + deadline_s
        async with self:
            connections = self._opened[asyncio.get_running_loop()]
            return await _Call(
                self, connections, name, rubric, deadline_s, deadline, on_result, items
            ).collect_results()

    async def graders(self) -> tuple[GraderInfo, ...]:
        """Return the live graders of the first service that answers. Raises QueueFault when none
        does, Misuse when refused."""
        return (await self._get("/v1/graders", GraderList)).graders

    async def description(self, grader: str) -> GraderDescription | None:
        """Return the description of a live grader; None where it is not running. Raises QueueFault
        when no service answers, Misuse when refused."""
        try:
            return await self._get(f"/v1/graders/{grader}", GraderDescription)
        except UnknownGrader:
            return None

    async def known(self, grader: str) -> str:
        """`grader`, if it ships, is installed here, or is announced by a worker of the service.

        Raises UnknownGrader for other names, QueueFault when no service answers.
        """
        try:
            return grader_named(grader)
        except UnknownGrader:
            if await self.description(check_name(grader)) is None:
                raise
            return grader

    async def wait_ready(self, grader: str, timeout_s: float = 60.0) -> GraderInfo:
        """Return the grader's announcement, as soon as a worker for it is alive. Raises QueueFault
        after `timeout_s`."""
        name = check_name(grader)
        give_up_at = time.monotonic() + timeout_s
        while True:
            try:
                for info in await self.graders():
                    if info.name == name:
                        return info
                why = (
                    f"no {name} grader is running at {self._url_text}: start one with `gradus"
                    f" worker {name}`"
                )
            except QueueFault as fault:
                why = fault.message
            if time.monotonic() >= give_up_at:
                raise QueueFault(f"not ready after {timeout_s:g} s: {why}")
            await asyncio.sleep(min(0.25, timeout_s))

    async def _get(self, path: str, answer: type[AnswerT]) -> AnswerT:
        """Return the answer of the first service that gives one.

        Raises QueueFault when none does, UnknownGrader for status 404, Misuse for another status
        that refuses.
        """
        failure = None
        async with self:
            http = self._opened[asyncio.get_running_loop()].http
            for url in self._sort_urls():
                try:
                    response = await http.get(f"{url}{path}", timeout=CONNECT_TIMEOUT_S)
                    if response.status_code == 200:
                        return answer.model_validate_json(response.content)
                    failure = self._record_failure(url, response)
                except (ValidationError, httpx.RequestError) as error:
                    failure = self._record_failure(url, error)
        assert failure is not None
        raise QueueFault(failure.message)

    def _record_failure(
        self, url: str, cause: httpx.Response | httpx.RequestError | ValidationError
    ) -> RequestFailure:
        """Return the failure of a request; its URL is shunned for a while. Raises Misuse for a
        status that refuses it."""
        failure = describe_failure(url, cause)
        if failure.kind is FaultKind.QUEUE:
            self._failed_at[url] = time.monotonic()
        return failure

    def _sort_urls(self) -> list[str]:
        """Return all URLs, starting with the next in turn; those that failed lately come last."""
        first = next(self._turn) % len(self._urls)
        shunned_after = time.monotonic() - SHUN_S
        turn = self._urls[first:] + self._urls[:first]
        return sorted(turn, key=lambda url: self._failed_at.get(url, float("-inf")) > shunned_after)


@dataclass(slots=True)
class _Call:
    """One `grade` call. `results` are by index of the submission, `places` indices by content
    hash."""

    client: RewardClient
    connections: _Connections
    grader: GraderName
    rubric: str | None
    deadline_s: float
    deadline: float  # in the event loop's time
    on_result: OnResult | None
    items: list[_Item]
    places: dict[str, list[int]] = field(default_factory=dict)
    results: dict[int, Graded | Faulted] = field(default_factory=dict)
    last_failure: RequestFailure | None = None

    def __post_init__(self) -> None:
        for index, item in enumerate(self.items):
            self.places.setdefault(item.key, []).append(index)

    def compute_remaining_s(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()

    async def collect_results(self) -> list[Graded | Faulted]:
        """Return all results. Submissions that another call on this loop has in flight are shared
        with it."""
        loop = asyncio.get_running_loop()
        in_flight = self.connections.in_flight
        # More than one round only when another call, whose work this one shared, gave up before its
        # own deadline.
        while missing := [
            self.items[at[0]] for at in self.places.values() if at[0] not in self.results
        ]:
            shared = {item.key: in_flight[item.key] for item in missing if item.key in in_flight}
            unsent = {item.key: item for item in missing if item.key not in shared}
            promises = {key: loop.create_future() for key in unsent}
            in_flight.update(promises)
            try:
                async with asyncio.TaskGroup() as group:
                    for batch in _split_batches(unsent.values(), self.client._batch_size):
                        group.create_task(self._grade_batch(batch))
                    for key, promise in shared.items():
                        group.create_task(self._await_shared(key, promise))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            finally:
                for key, promise in promises.items():
                    del in_flight[key]
                    if not promise.done():
                        promise.set_result(None)
        return [self.results[index] for index in range(len(self.items))]

    async def _await_shared(
        self, key: str, promise: asyncio.Future[Graded | Faulted | None]
    ) -> None:
        await asyncio.wait([promise], timeout=max(self.compute_remaining_s(), 0))
        result = promise.result() if promise.done() else None
        if result is not None:
            self._set_results(key, partial(replace_id, result))
        elif self.compute_remaining_s() <= 0:
            self._report_fault(
                key, FaultKind.DEADLINE, self._describe_timeout(self.client._url_text)
            )

    def _describe_timeout(self, at: str) -> str:
        after = f"; last: {self.last_failure.message}" if self.last_failure else ""
        return f"no result from {at} within {self.deadline_s:g} s{after}"

    async def _grade_batch(self, batch: list[_Item]) -> None:
        """Send a batch to one service after the other until each item has a result, the deadline
        passes, or a retry cannot help."""
        waiting = {item.id: item for item in batch}
        client = self.client
        target = client._url_text
        tried, defects = 0, 0
        try:
            async with asyncio.timeout_at(self.deadline), self.connections.slots:
                while True:
                    failures = []
                    for target in client._sort_urls():
                        failure = await self._send_batch(target, waiting)
                        if failure is None:
                            return
                        failures.append(failure)
                    # the failure after which a retry is most likely to succeed
                    failure = min(
                        failures,
                        key=lambda candidate: (
                            candidate.final,
                            candidate.defect,
                            candidate.retry_after_s is None,
                        ),
                    )
                    self.last_failure = failure
                    defects += failure.defect
                    if failure.retry_after_s is None:
                        tried += 1
                        pause_s = random.uniform(
                            0, min(MAX_BACKOFF_S, client._backoff_s * 2 ** min(tried, 16))
                        )
                    else:  # jitter, so that not all clients return at once
                        pause_s = failure.retry_after_s + random.uniform(0, client._backoff_s)
                    is_last = failure.final or defects == MAX_DEFECTS or tried == client._attempts
                    if is_last or pause_s >= self.compute_remaining_s():
                        break
                    await asyncio.sleep(pause_s)
            kind, message = failure.kind, failure.message
        except TimeoutError:
            kind = FaultKind.DEADLINE
            message = self._describe_timeout(target)
        for item in waiting.values():
            self._report_fault(item.key, kind, message)

    async def _send_batch(self, url: str, waiting: dict[str, _Item]) -> RequestFailure | None:
        """Send one request to one service; delivered items leave `waiting`. None when all were
        delivered."""
        # The service gets a little less time than is left, so that its response, with the results
        # so far and faults for the rest, arrives before this call's deadline.
        remaining_s = self.compute_remaining_s()
        deadline_s = max(remaining_s - min(2.0, 0.1 * remaining_s), 0.001)
        options: dict[str, Any] = {"deadline_s": deadline_s}
        if self.rubric:
            options["rubric"] = self.rubric
        body = (
            json.dumps(options)[:-1].encode()
            + b', "submissions": ['
            + b",".join(i.body for i in waiting.values())
            + b"]}"
        )
        stream = self.connections.http.stream(
            "POST",
            f"{url}/v1/grade/{self.grader}/stream",
            content=body,
            headers={"content-type": "application/json"},
        )
        outage = ""
        try:
            async with stream as response:
                if response.status_code != 200:
                    await response.aread()
                    return self.client._record_failure(url, response)
                async for line in _iter_lines(response.aiter_bytes()):
                    result = RESULT.validate_json(line)
                    if (
                        isinstance(result, Faulted)
                        and result.fault.kind is FaultKind.QUEUE
                        and result.fault.retryable
                    ):
                        outage = f"{url}: {result.fault.message}"
                    elif (item := waiting.pop(result.id, None)) is not None:
                        # The deadline is this call's: a call that shares the work may have more
                        # time left.
                        is_own_deadline = (
                            isinstance(result, Faulted) and result.fault.kind is FaultKind.DEADLINE
                        )
                        self.connections.in_flight[item.key].set_result(
                            None if is_own_deadline else result
                        )
                        self._set_results(item.key, partial(replace_id, result))
        except (ValidationError, httpx.RequestError) as error:
            return self.client._record_failure(url, error)
        if waiting and outage:
            return RequestFailure(FaultKind.QUEUE, outage, defect=True)
        self.client._failed_at.pop(url, None)
        if waiting:
            return RequestFailure(
                FaultKind.QUEUE, f"{url} stopped answering before all results were there"
            )
        return None

    def _report_fault(self, key: str, kind: FaultKind, message: str) -> None:
        grader = self.grader
        self._set_results(
            key,
            lambda submission_id: build_faulted(
                submission_id,
                kind,
                f"{grader} submission {submission_id!r}: {message}",
                retryable=True,
            ),
        )

    def _set_results(self, key: str, build_result: Callable[[str], Graded | Faulted]) -> None:
        """Set the result of each submission with this content hash."""
        for index in self.places[key]:
            self.results[index] = build_result(self.items[index].id)
            if self.on_result is not None:
                self.on_result(index, self.results[index])


def encode_submissions(
    grader: GraderName, submissions: Sequence[Submission | Mapping[str, Any]], rubric: str
) -> list[_Item]:
    """Return the submissions, validated and encoded. Raises Misuse naming the first bad one by its
    index."""
    kind = get_submission_class(grader)
    items: dict[str, _Item] = {}
    for index, raw in enumerate(submissions):
        try:
            is_other = isinstance(raw, BaseModel) and not isinstance(raw, kind)
            submission = kind.model_validate(dict(raw) if is_other else raw)
            key = compute_job_id(grader, rubric, submission)
            body = submission.model_dump_json().encode()
        except ValidationError as error:
            misuse = convert_validation_error(error)
            raise type(misuse)(f"submissions.{index}: {misuse}") from None
        except ValueError as error:
            # team_context may hold anything, and not everything can be written as JSON.
            message = f"submissions.{index}: cannot be written as JSON: {type(error).__name__}"
            raise Misuse(message) from None
        if submission.id in items:
            raise Misuse(
                f"submission id {submission.id!r} occurs twice; ids must be unique in a call"
            )
        items[submission.id] = _Item(submission.id, key, body)
    return list(items.values())


def _split_batches(items: Iterable[_Item], batch_size: int) -> list[list[_Item]]:
    """Return the items in order, cut so that no batch passes `batch_size` items or `MAX_BODY_BYTES`
    (a single item may)."""
    batches: list[list[_Item]] = []
    size_bytes = 0
    for item in items:
        size_bytes += len(item.body)
        if not batches or len(batches[-1]) == batch_size or size_bytes > MAX_BODY_BYTES:
            batches.append([])
            size_bytes = len(item.body)
        batches[-1].append(item)
    return batches


async def _iter_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of an NDJSON stream. (httpx's `aiter_lines` also splits at U+2028, U+2029 and
    U+0085, which may occur inside JSON texts.)"""
    tail = b""
    async for chunk in chunks:
        *lines, tail = (tail + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
