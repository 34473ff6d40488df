"""`RewardClient` sends submissions to grading services and returns verdicts and faults, in order,
within a deadline.

It never makes up a reward and never raises for a failure of ours: a submission that was not judged
in time comes back as `Faulted`, which names the service and what to start. Only misuse raises. A
fault that a service reports is final, because workers have already retried it; only a `queue` fault
is asked about again, up to `MAX_DEFECTS` times.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
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
    faulted,
    job_id_of,
    submission_class,
    with_id,
)
from gradus.descriptions import (
    GraderDescription,
    GraderInfo,
    GraderList,
    checked_name,
    grader_named,
)
from gradus.errors import FaultKind, Misuse, QueueFault, UnknownGrader
from gradus.request_failures import RequestFailure, failure_of
from gradus.validation import misuse_from_validation_error

AnswerT = TypeVar("AnswerT", bound=BaseModel)
OnResult = Callable[[int, Graded | Faulted], None]

MAX_DEFECTS = 3
"""A batch fails after this many answers of status 500: a defect may be one process's, or pass.
Identical work is known by its content and done once, so a retry is safe; retrying until the
deadline would be no use."""
MAX_BODY_BYTES = 16 * 2**20
"""Size at which a batch is cut, well below the service's default limit of 64 MiB."""
CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 30.0
"""Seconds of silence after which a service counts as hanging: a working one sends an empty line
every few seconds."""
SHUN_S = 10.0
"""Seconds for which a URL that failed is tried last."""
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
    in_flight: dict[str, asyncio.Future[Graded | Faulted | None]] = field(default_factory=dict)
    """By content hash. None: the call that asked gave up, so a call that follows it with time left
    asks itself."""
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
        """A service that is away is retried until the deadline, or until `attempts` tries per batch
        have failed.

        A 429 is only bounded by the deadline. A service that is silent for `silence_s` is left for
        the next one.

        Raises Misuse for a URL or a size that cannot work.
        """
        self._urls = (
            [urls.rstrip("/")] if isinstance(urls, str) else [url.rstrip("/") for url in urls]
        )
        if not self._urls:
            raise Misuse("RewardClient needs at least one URL")
        for url in self._urls:
            try:
                good = httpx.URL(url).scheme in ("http", "https") and bool(httpx.URL(url).host)
            except httpx.InvalidURL:
                good = False
            if not good:
                raise Misuse(f"{url!r} is not a URL such as http://127.0.0.1:8000")
        self._named = ", ".join(self._urls)
        least = min(max_connections, 1 if attempts is None else attempts)
        if not 1 <= batch_size <= MAX_BATCH or least < 1 or silence_s <= 0:
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
        self._verify = (
            httpx.create_ssl_context()
            if any(url.startswith("https:") for url in self._urls)
            else False
        )
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
        """One result per submission, in order, within `deadline_s` for the whole call.

        `on_result` is called with (index, result) once for each, as it arrives. Raises Misuse for
        submissions or options that the contract refuses; everything else that goes wrong is a
        `Faulted` in the list.
        """
        name = checked_name(grader)
        if not 0 < deadline_s <= MAX_DEADLINE_S:
            raise Misuse(
                f"deadline_s must be over 0 and at most {MAX_DEADLINE_S:.0f}, not {deadline_s}"
            )
        items = encoded(name, submissions, rubric or "")
        deadline = asyncio.get_running_loop().time() + deadline_s
        async with self:
            here = self._opened[asyncio.get_running_loop()]
            return await _Call(
                self, here, name, rubric, deadline_s, deadline, on_result, items
            ).results_in_order()

    async def graders(self) -> tuple[GraderInfo, ...]:
        """The live graders of the first service that answers. Raises QueueFault when none does,
        Misuse when refused."""
        return (await self._get("/v1/graders", GraderList)).graders

    async def description(self, grader: str) -> GraderDescription | None:
        """The description of a live grader; None where it is not running. Raises QueueFault when no
        service answers, Misuse when refused."""
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
            if await self.description(checked_name(grader)) is None:
                raise
            return grader

    async def wait_ready(self, grader: str, timeout_s: float = 60.0) -> GraderInfo:
        """The grader's announcement, as soon as a worker for it is alive. Raises QueueFault after
        `timeout_s`."""
        name = checked_name(grader)
        give_up_at = time.monotonic() + timeout_s
        while True:
            try:
                for info in await self.graders():
                    if info.name == name:
                        return info
                why = (
                    f"no {name} grader is running at {self._named}: start one with `gradus worker"
                    f" {name}`"
                )
            except QueueFault as fault:
                why = fault.message
            if time.monotonic() >= give_up_at:
                raise QueueFault(f"not ready after {timeout_s:g} s: {why}")
            await asyncio.sleep(min(0.25, timeout_s))

    async def _get(self, path: str, answer: type[AnswerT]) -> AnswerT:
        """The answer of the first service that gives one.

        Raises QueueFault when none does, UnknownGrader for status 404, Misuse for another status
        that refuses.
        """
        failure = None
        async with self:
            http = self._opened[asyncio.get_running_loop()].http
            for url in self._urls_in_turn():
                try:
                    response = await http.get(f"{url}{path}", timeout=CONNECT_TIMEOUT_S)
                    if response.status_code == 200:
                        return answer.model_validate_json(response.content)
                    failure = self._failed(url, response)
                except (ValidationError, httpx.RequestError) as error:
                    failure = self._failed(url, error)
        assert failure is not None
        raise QueueFault(failure.message)

    def _failed(
        self, url: str, cause: httpx.Response | httpx.RequestError | ValidationError
    ) -> RequestFailure:
        """The failure of a request; its URL is shunned for a while. Raises Misuse for a status that
        refuses it."""
        failure = failure_of(url, cause)
        if failure.kind is FaultKind.QUEUE:
            self._failed_at[url] = time.monotonic()
        return failure

    def _urls_in_turn(self) -> list[str]:
        """All URLs, starting with the next in turn; those that failed lately come last."""
        first = next(self._turn) % len(self._urls)
        shunned_after = time.monotonic() - SHUN_S
        turn = self._urls[first:] + self._urls[:first]
        return sorted(turn, key=lambda url: self._failed_at.get(url, float("-inf")) > shunned_after)


@dataclass(slots=True)
class _Call:
    """One `grade` call. `results` are by index of the submission, `places` indices by content
    hash."""

    client: RewardClient
    here: _Connections
    grader: GraderName
    rubric: str | None
    deadline_s: float
    deadline: float
    """In the event loop's time."""
    on_result: OnResult | None
    items: list[_Item]
    places: dict[str, list[int]] = field(default_factory=dict)
    results: dict[int, Graded | Faulted] = field(default_factory=dict)
    last_failure: RequestFailure | None = None

    def __post_init__(self) -> None:
        for index, item in enumerate(self.items):
            self.places.setdefault(item.key, []).append(index)

    def remaining_s(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()

    async def results_in_order(self) -> list[Graded | Faulted]:
        """The results, when all are there. Asks for what no call on this loop asks for yet, and
        shares the rest."""
        loop = asyncio.get_running_loop()
        in_flight = self.here.in_flight
        # More than one round only when another call, whose work this one shared, gave up before its
        # own deadline.
        while missing := [
            self.items[at[0]] for at in self.places.values() if at[0] not in self.results
        ]:
            shared = {item.key: in_flight[item.key] for item in missing if item.key in in_flight}
            own = {item.key: item for item in missing if item.key not in shared}
            promises = {key: loop.create_future() for key in own}
            in_flight.update(promises)
            try:
                async with asyncio.TaskGroup() as group:
                    for batch in _batches(own.values(), self.client._batch_size):
                        group.create_task(self._ask_for(batch))
                    for key, promise in shared.items():
                        group.create_task(self._share(key, promise))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            finally:
                for key, promise in promises.items():
                    del in_flight[key]
                    if not promise.done():
                        promise.set_result(None)
        return [self.results[index] for index in range(len(self.items))]

    async def _share(self, key: str, promise: asyncio.Future[Graded | Faulted | None]) -> None:
        await asyncio.wait([promise], timeout=max(self.remaining_s(), 0))
        result = promise.result() if promise.done() else None
        if result is not None:
            self._deliver(key, partial(with_id, result))
        elif self.remaining_s() <= 0:
            self._give_up(key, FaultKind.DEADLINE, self._too_late(self.client._named))

    def _too_late(self, at: str) -> str:
        after = f"; last: {self.last_failure.message}" if self.last_failure else ""
        return f"no result from {at} within {self.deadline_s:g} s{after}"

    async def _ask_for(self, batch: list[_Item]) -> None:
        """Ask one service after the other until each item has a result, the deadline passes, or a
        retry is no use."""
        waiting = {item.id: item for item in batch}
        client = self.client
        asked = client._named
        tried, defects = 0, 0
        try:
            async with asyncio.timeout_at(self.deadline), self.here.slots:
                while True:
                    failures = []
                    for asked in client._urls_in_turn():
                        failure = await self._ask(asked, waiting)
                        if failure is None:
                            return
                        failures.append(failure)
                    # the failure after which a retry is most likely to succeed
                    failure = min(
                        failures, key=lambda one: (one.final, one.defect, one.retry_after_s is None)
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
                    if is_last or pause_s >= self.remaining_s():
                        break
                    await asyncio.sleep(pause_s)
            kind, message = failure.kind, failure.message
        except TimeoutError:
            kind = FaultKind.DEADLINE
            message = self._too_late(asked)
        for item in waiting.values():
            self._give_up(item.key, kind, message)

    async def _ask(self, url: str, waiting: dict[str, _Item]) -> RequestFailure | None:
        """One request to one service; delivered items leave `waiting`. None when all were
        delivered."""
        # The service gets a little less time than there is, so that its own answer about the
        # deadline, with the results that were ready, arrives before this side stops listening.
        remaining_s = self.remaining_s()
        deadline_s = max(remaining_s - min(2.0, 0.1 * remaining_s), 0.001)
        options = json.dumps(
            {"deadline_s": deadline_s} | ({"rubric": self.rubric} if self.rubric else {})
        )
        body = (
            options[:-1].encode()
            + b', "submissions": ['
            + b",".join(i.body for i in waiting.values())
            + b"]}"
        )
        stream = self.here.http.stream(
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
                    return self.client._failed(url, response)
                async for line in _lines(response.aiter_bytes()):
                    result = RESULT.validate_json(line)
                    if (
                        isinstance(result, Faulted)
                        and result.fault.kind is FaultKind.QUEUE
                        and result.fault.retryable
                    ):
                        outage = f"{url}: {result.fault.message}"
                    elif (item := waiting.pop(result.id, None)) is not None:
                        # A deadline is the asker's own: a call that shares with more time left must
                        # not inherit it.
                        own = (
                            isinstance(result, Faulted) and result.fault.kind is FaultKind.DEADLINE
                        )
                        self.here.in_flight[item.key].set_result(None if own else result)
                        self._deliver(item.key, partial(with_id, result))
        except (ValidationError, httpx.RequestError) as error:
            return self.client._failed(url, error)
        if waiting and outage:
            return RequestFailure(FaultKind.QUEUE, outage, defect=True)
        self.client._failed_at.pop(url, None)
        if waiting:
            return RequestFailure(
                FaultKind.QUEUE, f"{url} stopped answering before all results were there"
            )
        return None

    def _give_up(self, key: str, kind: FaultKind, message: str) -> None:
        grader = self.grader
        self._deliver(
            key,
            lambda one: faulted(
                one, kind, f"{grader} submission {one!r}: {message}", retryable=True
            ),
        )

    def _deliver(self, key: str, result_of: Callable[[str], Graded | Faulted]) -> None:
        """Give each submission of this content its result, by its id."""
        for index in self.places[key]:
            self.results[index] = result_of(self.items[index].id)
            if self.on_result is not None:
                self.on_result(index, self.results[index])


def encoded(
    grader: GraderName, submissions: Sequence[Submission | Mapping[str, Any]], rubric: str
) -> list[_Item]:
    """The submissions, validated and encoded. Raises Misuse naming the first bad one by its
    index."""
    kind = submission_class(grader)
    items: dict[str, _Item] = {}
    for index, given in enumerate(submissions):
        try:
            is_other = isinstance(given, BaseModel) and not isinstance(given, kind)
            one = kind.model_validate(dict(given) if is_other else given)
            key = job_id_of(grader, rubric, one)
            body = one.model_dump_json().encode()
        except ValidationError as error:
            misuse = misuse_from_validation_error(error)
            raise type(misuse)(f"submissions.{index}: {misuse}") from None
        except ValueError as error:
            # team_context may hold anything, and not everything can be written as JSON.
            message = f"submissions.{index}: cannot be written as JSON: {type(error).__name__}"
            raise Misuse(message) from None
        if one.id in items:
            raise Misuse(f"submission id {one.id!r} occurs twice; ids must be unique in a call")
        items[one.id] = _Item(one.id, key, body)
    return list(items.values())


def _batches(items: Iterable[_Item], batch_size: int) -> list[list[_Item]]:
    """The items in order, cut so that no batch passes `batch_size` items or `MAX_BODY_BYTES` (a
    single item may)."""
    batches: list[list[_Item]] = []
    size_bytes = 0
    for item in items:
        size_bytes += len(item.body)
        if not batches or len(batches[-1]) == batch_size or size_bytes > MAX_BODY_BYTES:
            batches.append([])
            size_bytes = len(item.body)
        batches[-1].append(item)
    return batches


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of an NDJSON stream. (httpx's `aiter_lines` also cuts at U+2028 and its kin, inside
    JSON texts.)"""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
