"""`RewardClient`, the way into the services from outside: submissions in, verdicts and faults out, in order, in time.

It never makes up a reward and never raises for a failure of ours: what could not be judged in time comes back as
`Faulted`, naming the service and what to start. Only misuse raises. It does not grade, cache verdicts, or retry a fault
that a service reported: workers have done that already.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Self

import httpx
from pydantic import BaseModel, ValidationError

from gradus.contract import (
    DEFAULT_DEADLINE_S,
    GRADER_NAME,
    MAX_BATCH,
    MAX_DEADLINE_S,
    RESULT,
    SUBMISSIONS,
    Faulted,
    Graded,
    GraderDescription,
    GraderInfo,
    GraderList,
    GraderName,
    Submission,
    faulted,
    grader_named,
    job_id_of,
    misuse_from_validation_error,
    submission_class,
    with_id,
)
from gradus.errors import FaultKind, Misuse, QueueFault, TooLarge, UnknownGrader

OnResult = Callable[[int, Graded | Faulted], None]

RETRIED = frozenset({408, 425, 429, 502, 503, 504})
"""HTTP statuses that say: not now."""
MAX_DEFECTS = 3
"""How often a batch is answered 500 before that is its result: a defect may be one process's, or pass. To ask again is
safe, because identical work is known by its content and done once; to ask until the deadline would be no use."""
MAX_BODY_BYTES = 16 * 2**20
"""A batch is cut here, well below the service's default limit of 64 MiB."""
CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 30.0
"""A service that says nothing for this long hangs: while it works it sends an empty line every few seconds."""
SHUN_S = 10.0
"""A URL that failed is tried last for this long."""
MAX_BACKOFF_S = 8.0


@dataclass(frozen=True, slots=True)
class _Item:
    """One submission of a call, encoded once."""

    id: str
    key: str
    """Content hash: items with the same key have the same result."""
    body: bytes


@dataclass(frozen=True, slots=True)
class _RequestFailure:
    """Why a request brought no results."""

    kind: FaultKind
    message: str
    final: bool = False
    """Asking again would bring the same."""
    defect: bool = False
    """Asking again would probably bring the same."""
    pause_s: float | None = None
    """What the service asked for with Retry-After."""


@dataclass(slots=True)
class _Call:
    """One `grade` call: what is asked, by when (loop time), and what has come so far."""

    grader: GraderName
    rubric: str | None
    deadline: float
    deadline_s: float
    on_result: OnResult | None
    items: list[_Item]
    places: dict[str, list[int]] = field(default_factory=dict)
    results: dict[int, Graded | Faulted] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    """By submission: the URL that was asked last."""
    last_trouble: _RequestFailure | None = None

    def __post_init__(self) -> None:
        for index, item in enumerate(self.items):
            self.places.setdefault(item.key, []).append(index)

    def remaining_s(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()

    def missing(self) -> list[_Item]:
        """One item of each content that has no result yet."""
        return [self.items[places[0]] for places in self.places.values() if places[0] not in self.results]

    def deliver(self, key: str, result: Graded | Faulted) -> None:
        """Give every asker of this content its result, once."""
        for index in self.places[key]:
            submission_id = self.items[index].id
            self._put(index, result if result.id == submission_id else with_id(result, submission_id))

    def give_up(self, key: str, kind: FaultKind, message: str) -> None:
        for index in self.places[key]:
            submission_id = self.items[index].id
            named = f"{self.grader} submission {submission_id!r}: {message}"
            self._put(index, faulted(submission_id, kind, named, retryable=True))

    def _put(self, index: int, result: Graded | Faulted) -> None:
        self.results[index] = result
        if self.on_result is not None:
            self.on_result(index, result)

    def body(self, items: Iterable[_Item]) -> bytes:
        # The service gets a little less time than there is, so that its own answer about the deadline, with the
        # results that were ready, arrives before this side stops listening.
        remaining_s = self.remaining_s()
        deadline_s = max(remaining_s - min(2.0, 0.1 * remaining_s), 0.001)
        options = {"deadline_s": deadline_s} | ({"rubric": self.rubric} if self.rubric else {})
        return json.dumps(options)[:-1].encode() + b', "submissions": [' + b",".join(i.body for i in items) + b"]}"


class _Connections:
    """What belongs to one event loop: its connections and the work that is in flight on them."""

    def __init__(self, http: httpx.AsyncClient, max_connections: int) -> None:
        self.http = http
        self.slots = asyncio.Semaphore(max_connections)
        self.in_flight: dict[str, asyncio.Future[Graded | Faulted | None]] = {}
        """By content; None says that the call which asked gave up, so that a follower with time left asks itself."""
        self.users = 0


class RewardClient:
    """Grades submissions on one or several services; safe to use from any event loop, also one after the other.

    Connections live as long as calls are running on a loop, or as long as an `async with` block that was entered there.
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
        """A service that is away is waited for until the deadline, or until `attempts` tries per batch have failed.

        A 429 is only bounded by the deadline. A service that is silent for `silence_s` is left for the next one.

        Raises Misuse for a URL or a size that cannot work.
        """
        self._urls = _checked_urls([urls] if isinstance(urls, str) else list(urls))
        if not 1 <= batch_size <= MAX_BATCH or max_connections < 1 or (attempts is not None and attempts < 1):
            raise Misuse(f"batch_size must be 1 to {MAX_BATCH}, max_connections and attempts at least 1")
        if silence_s <= 0:
            raise Misuse(f"silence_s must be over 0, not {silence_s}")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise Misuse("api_key contains characters that no HTTP header can carry")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._batch_size = batch_size
        self._max_connections = max_connections
        self._transport = transport
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._silence_s = silence_s
        self._turn = itertools.count()
        self._failed_at: dict[str, float] = {}
        self._tls: ssl.SSLContext | None = None
        self._opened: dict[asyncio.AbstractEventLoop, _Connections] = {}

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._leave()

    # -------------------------------------------------------------------------------------------------- what it does

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

        `on_result` is called with (index, result) once for each, as it arrives. Raises Misuse for submissions or
        options that the contract refuses; everything else that goes wrong is a `Faulted` in the list.
        """
        name = _checked_name(grader)
        if not 0 < deadline_s <= MAX_DEADLINE_S:
            raise Misuse(f"deadline_s must be over 0 and at most {MAX_DEADLINE_S:.0f}, not {deadline_s}")
        items = _encoded(name, submissions, rubric)
        deadline = asyncio.get_running_loop().time() + deadline_s
        call = _Call(name, rubric, deadline, deadline_s, on_result, items)
        async with self._connections() as here:
            # More than one round only when another call, whose work this one shared, gave up before its own deadline.
            while missing := call.missing():
                await self._round(here, call, missing)
        return [call.results[index] for index in range(len(items))]

    async def graders(self) -> tuple[GraderInfo, ...]:
        """The live graders of the first service that answers. Raises QueueFault when none does, Misuse when refused."""
        async with self._connections() as here:
            trouble = None
            for url in self._urls_in_turn():
                answer = await self._graders_at(here, url)
                if not isinstance(answer, _RequestFailure):
                    return answer
                trouble = answer
        assert trouble is not None
        raise QueueFault(trouble.message)

    async def description(self, grader: str) -> GraderDescription | None:
        """The description of a live grader; None from services of earlier versions, which have none, and where the
        grader is not running. Raises QueueFault when no service answers, Misuse when refused."""
        async with self._connections() as here:
            trouble = None
            for url in self._urls_in_turn():
                try:
                    response = await here.http.get(
                        f"{url}/v1/graders/{grader}", headers=self._headers, timeout=CONNECT_TIMEOUT_S
                    )
                    if response.status_code == 404:
                        return None
                    if response.status_code == 200:
                        return GraderDescription.model_validate_json(response.content)
                    trouble = self._refused(url, response)
                except ValidationError:
                    trouble = _RequestFailure(
                        FaultKind.INTERNAL, f"{url} answered something that is no description", final=True
                    )
                except httpx.RequestError as error:
                    trouble = self._unreachable(url, error)
        assert trouble is not None
        raise QueueFault(trouble.message)

    async def known(self, grader: str) -> str:
        """`grader`, if it ships, is installed here, or is announced by a worker of the service.

        Raises UnknownGrader for other names, QueueFault when no service answers.
        """
        try:
            return grader_named(grader)
        except UnknownGrader:
            if await self.description(_checked_name(grader)) is None:
                raise
            return grader

    async def wait_ready(self, grader: str, timeout_s: float = 60.0) -> GraderInfo:
        """The grader's announcement, as soon as a worker for it is alive. Raises QueueFault after `timeout_s`."""
        name = _checked_name(grader)
        give_up_at = time.monotonic() + timeout_s
        while True:
            try:
                found = [info for info in await self.graders() if info.name == name]
                if found:
                    return found[0]
                why = f"no {name} grader is running at {self._named()}: start one with `gradus worker {name}`"
            except QueueFault as fault:
                why = fault.message
            if time.monotonic() >= give_up_at:
                raise QueueFault(f"not ready after {timeout_s:g} s: {why}")
            await asyncio.sleep(min(0.25, timeout_s))

    # --------------------------------------------------------------------------------------------- sharing and asking

    async def _round(self, here: _Connections, call: _Call, missing: list[_Item]) -> None:
        """Ask for what nobody on this loop asks for yet; wait for the rest with those who asked."""
        followed = [(item.key, here.in_flight[item.key]) for item in missing if item.key in here.in_flight]
        own = [item for item in missing if item.key not in here.in_flight]
        loop = asyncio.get_running_loop()
        promises = {item.key: loop.create_future() for item in own}
        here.in_flight.update(promises)
        try:
            await _together(
                *(self._batch(here, call, batch) for batch in _batches(own, self._batch_size)),
                *(self._follow(call, key, future) for key, future in followed),
            )
        finally:
            for key, promise in promises.items():
                del here.in_flight[key]
                if not promise.done():
                    promise.set_result(None)

    async def _follow(self, call: _Call, key: str, future: asyncio.Future[Graded | Faulted | None]) -> None:
        await asyncio.wait([future], timeout=max(call.remaining_s(), 0))
        result = future.result() if future.done() else None
        if result is not None:
            call.deliver(key, result)
        elif call.remaining_s() <= 0:
            call.give_up(key, FaultKind.DEADLINE, self._too_late(call, self._named()))

    async def _batch(self, here: _Connections, call: _Call, batch: list[_Item]) -> None:
        """Ask until each item of the batch has a result, the deadline passes, or attempts run out."""
        waiting = {item.id: item for item in batch}
        try:
            async with asyncio.timeout_at(call.deadline), here.slots:
                trouble = await self._attempt(here, call, waiting)
        except TimeoutError:
            for item in waiting.values():
                at = call.asked.get(item.id, self._named())
                call.give_up(item.key, FaultKind.DEADLINE, self._too_late(call, at))
            return
        if trouble is not None:
            for item in waiting.values():
                call.give_up(item.key, trouble.kind, trouble.message)

    async def _attempt(self, here: _Connections, call: _Call, waiting: dict[str, _Item]) -> _RequestFailure | None:
        """Ask again and again until nothing is waiting (None) or there is no point in asking once more."""
        tried = defects = 0
        while (trouble := await self._ask_each(here, call, waiting)) is not None and not trouble.final:
            call.last_trouble = trouble
            tried += trouble.pause_s is None
            defects += trouble.defect
            pause_s = self._pause_s(tried, trouble)
            enough = defects == MAX_DEFECTS or (self._attempts is not None and tried >= self._attempts)
            if enough or pause_s >= call.remaining_s():
                break
            await asyncio.sleep(pause_s)
        return trouble

    async def _ask_each(self, here: _Connections, call: _Call, waiting: dict[str, _Item]) -> _RequestFailure | None:
        """Ask one service after the other until nothing is waiting (None); else the trouble that leaves most hope."""
        troubles = []
        for url in self._urls_in_turn():
            trouble = await self._ask(here, url, call, waiting)
            if trouble is None:
                return None
            troubles.append(trouble)
        return min(troubles, key=lambda trouble: (trouble.final, trouble.defect, trouble.pause_s is None))

    async def _ask(
        self, here: _Connections, url: str, call: _Call, waiting: dict[str, _Item]
    ) -> _RequestFailure | None:
        """One request to one service; delivered items leave `waiting`. None when all were delivered."""
        call.asked.update(dict.fromkeys(waiting, url))
        try:
            async with here.http.stream(
                "POST",
                f"{url}/v1/grade/{call.grader}/stream",
                content=call.body(waiting.values()),
                headers=self._headers | {"content-type": "application/json"},
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    return self._refused(url, response)
                async for line in _lines(response.aiter_bytes()):
                    self._take(here, call, waiting, RESULT.validate_json(line))
        except ValidationError:
            return _RequestFailure(
                FaultKind.INTERNAL, f"{url} answered something that is no grading result", final=True
            )
        except httpx.RequestError as error:
            return self._unreachable(url, error)
        self._failed_at.pop(url, None)
        return (
            _RequestFailure(FaultKind.QUEUE, f"{url} stopped answering before all results were there")
            if waiting
            else None
        )

    def _take(self, here: _Connections, call: _Call, waiting: dict[str, _Item], result: Graded | Faulted) -> None:
        item = waiting.pop(result.id, None)
        if item is None:
            return
        promise = here.in_flight[item.key]
        if not promise.done():
            # A deadline is the asker's own: one who follows with more time must not inherit it.
            ours = isinstance(result, Faulted) and result.fault.kind is FaultKind.DEADLINE
            promise.set_result(None if ours else result)
        call.deliver(item.key, result)

    async def _graders_at(self, here: _Connections, url: str) -> tuple[GraderInfo, ...] | _RequestFailure:
        try:
            response = await here.http.get(f"{url}/v1/graders", headers=self._headers, timeout=CONNECT_TIMEOUT_S)
            if response.status_code != 200:
                return self._refused(url, response)
            return GraderList.model_validate_json(response.content).graders
        except ValidationError:
            return _RequestFailure(
                FaultKind.INTERNAL, f"{url} answered something that is no list of graders", final=True
            )
        except httpx.RequestError as error:
            return self._unreachable(url, error)

    # -------------------------------------------------------------------------------------------- what went wrong

    def _refused(self, url: str, response: httpx.Response) -> _RequestFailure:
        """The trouble that a status says. Raises Misuse for one that blames the caller."""
        status, detail = response.status_code, _detail_of(response)
        if status in RETRIED:
            self._failed_at[url] = time.monotonic()
            pause_s = _retry_after_s(response) if status == 429 else None
            return _RequestFailure(FaultKind.QUEUE, f"{url} answered {status}: {detail}", pause_s=pause_s)
        if status >= 500:
            defect = status == 500
            return _RequestFailure(
                FaultKind.INTERNAL, f"{url} answered {status}: {detail}", final=not defect, defect=defect
            )
        raise (TooLarge if status == TooLarge.status else Misuse)(f"{url} answered {status}: {detail}")

    def _unreachable(self, url: str, error: httpx.RequestError) -> _RequestFailure:
        self._failed_at[url] = time.monotonic()
        if isinstance(error, httpx.ReadTimeout):
            return _RequestFailure(FaultKind.QUEUE, f"{url} hangs: it said nothing for {self._silence_s:g} s")
        why = str(error) or type(error).__name__
        return _RequestFailure(
            FaultKind.QUEUE, f"no grading service answers at {self._named()} ({why}): start one with `gradus serve`"
        )

    def _too_late(self, call: _Call, at: str) -> str:
        after = f"; last: {call.last_trouble.message}" if call.last_trouble else ""
        return f"no result from {at} within {call.deadline_s:g} s{after}"

    def _named(self) -> str:
        return ", ".join(self._urls)

    def _pause_s(self, tried: int, trouble: _RequestFailure) -> float:
        """Full jitter; or what the service asked for and a little more, so that not all clients return at once."""
        if trouble.pause_s is not None:
            return trouble.pause_s + random.uniform(0, self._backoff_s)
        return random.uniform(0, min(MAX_BACKOFF_S, self._backoff_s * 2 ** min(tried, 16)))

    def _urls_in_turn(self) -> list[str]:
        """All URLs, starting with the next in turn; those that failed lately come last."""
        first = next(self._turn) % len(self._urls)
        shunned_after = time.monotonic() - SHUN_S
        turn = self._urls[first:] + self._urls[:first]
        return sorted(turn, key=lambda url: self._failed_at.get(url, float("-inf")) > shunned_after)

    # ------------------------------------------------------------------------------------------------- connections

    @asynccontextmanager
    async def _connections(self) -> AsyncIterator[_Connections]:
        here = self._enter()
        try:
            yield here
        finally:
            await self._leave()

    def _enter(self) -> _Connections:
        loop = asyncio.get_running_loop()
        for other in list(self._opened):
            if other.is_closed():
                self._opened.pop(other, None)
        if loop not in self._opened:
            self._opened[loop] = _Connections(self._http(), self._max_connections)
        here = self._opened[loop]
        here.users += 1
        return here

    async def _leave(self) -> None:
        # Nothing outlives its last user: a connection kept for later would belong to a loop that may be closed by then.
        here = self._opened[asyncio.get_running_loop()]
        here.users -= 1
        if not here.users:
            del self._opened[asyncio.get_running_loop()]
            await here.http.aclose()

    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=self._transport,
            verify=self._tls_context(),
            timeout=httpx.Timeout(self._silence_s, connect=CONNECT_TIMEOUT_S, pool=None),
            limits=httpx.Limits(max_connections=self._max_connections + 1),
        )

    def _tls_context(self) -> ssl.SSLContext | bool:
        # Reading the system's certificates takes longer than a request; it is done once, and only where https needs it.
        if self._tls is None and any(url.startswith("https:") for url in self._urls):
            self._tls = httpx.create_ssl_context()
        return self._tls or False


def _checked_urls(urls: Sequence[str]) -> tuple[str, ...]:
    if not urls:
        raise Misuse("RewardClient needs at least one URL")
    for url in urls:
        try:
            good = httpx.URL(url).scheme in ("http", "https") and bool(httpx.URL(url).host)
        except httpx.InvalidURL:
            good = False
        if not good:
            raise Misuse(f"{url!r} is not a URL such as http://127.0.0.1:8000")
    return tuple(url.rstrip("/") for url in urls)


def _checked_name(grader: str) -> str:
    if not re.fullmatch(GRADER_NAME, grader):
        raise UnknownGrader(f"{grader!r} cannot be the name of a grader; there are: {', '.join(SUBMISSIONS)}")
    return grader


def _encoded(
    grader: GraderName, submissions: Sequence[Submission | Mapping[str, Any]], rubric: str | None
) -> list[_Item]:
    """The submissions, validated and encoded. Raises Misuse naming the first bad one by its index."""
    items = [_item(grader, index, submission, rubric or "") for index, submission in enumerate(submissions)]
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise Misuse(f"submission id {item.id!r} occurs twice; ids must be unique in a call")
        seen.add(item.id)
    return items


def _item(grader: GraderName, index: int, given: Submission | Mapping[str, Any], rubric: str) -> _Item:
    where = f"submissions.{index}"
    try:
        kind = submission_class(grader)
        is_other = isinstance(given, BaseModel) and not isinstance(given, kind)
        submission = kind.model_validate(dict(given) if is_other else given)
        return _Item(submission.id, job_id_of(grader, rubric, submission), submission.model_dump_json().encode())
    except ValidationError as error:
        misuse = misuse_from_validation_error(error)
        raise type(misuse)(f"{where}: {misuse}") from None
    except ValueError as error:
        # team_context may hold anything, and not everything can be written as JSON.
        raise Misuse(f"{where}: cannot be written as JSON: {type(error).__name__}") from None


def _batches(items: Iterable[_Item], batch_size: int) -> list[list[_Item]]:
    """The items in order, cut so that no batch passes `batch_size` items or `MAX_BODY_BYTES` (a single item may)."""
    batches: list[list[_Item]] = []
    size_bytes = 0
    for item in items:
        size_bytes += len(item.body)
        if not batches or len(batches[-1]) == batch_size or size_bytes > MAX_BODY_BYTES:
            batches.append([])
            size_bytes = len(item.body)
        batches[-1].append(item)
    return batches


async def _together(*work: Awaitable[None]) -> None:
    """Run all; the first exception cancels the rest, waits for them to stop, and is raised as it is."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of an NDJSON stream. (httpx's `aiter_lines` also cuts at U+2028 and its kin, inside JSON texts.)"""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


def _detail_of(response: httpx.Response) -> str:
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return response.reason_phrase
    return str(detail)


def _retry_after_s(response: httpx.Response) -> float | None:
    """Seconds that a Retry-After header asks for, given as a number or as a date."""
    value = response.headers.get("retry-after", "")
    if value.isdigit():
        return float(value)
    try:
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
