"""`CoalescingClient`: `RewardClient` for trainers that grade completions one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradus.client import OnResult, RewardClient, encode_submissions
from gradus.contract import DEFAULT_DEADLINE_S, Faulted, Graded, Submission
from gradus.descriptions import check_name
from gradus.errors import Misuse

WINDOW_S = 0.005
IDLE_S = 1.0
"""Seconds without a call after which connections are closed. Opening one costs as much as a
request."""


@dataclass(eq=False, slots=True)
class _Shared:
    """The submissions of calls that are sent as one, each with the result that its call waits for,
    by id."""

    submissions: dict[str, Submission | Mapping[str, Any]] = field(default_factory=dict)
    results: dict[str, asyncio.Future[Graded | Faulted | Misuse]] = field(default_factory=dict)
    callers: int = 0
    sending: asyncio.Task[None] | None = None


class CoalescingClient(RewardClient):
    """`RewardClient` that sends calls of one submission together.

    Calls on one event loop with the same grader, rubric and deadline that start together, or within
    `window_s` seconds while others are in flight, become one call. Each returns as soon as its own
    result is there. A submission that is refused raises Misuse in its own call alone. Calls with
    several submissions, and those whose id is in the current window already, are sent as they are.
    """

    def __init__(
        self,
        urls: str | Sequence[str] = "http://127.0.0.1:8000",
        *,
        window_s: float = WINDOW_S,
        **options: Any,
    ) -> None:
        """`options`: the options of `RewardClient`."""
        super().__init__(urls, **options)
        self._window_s = window_s
        self._n_sending = 0
        # Time of the last call on each loop whose connections are kept open, of the loop's clock.
        self._used_at: dict[asyncio.AbstractEventLoop, float] = {}
        self._keepers: set[asyncio.Task[None]] = set()
        self._windows: dict[tuple[asyncio.AbstractEventLoop, str, str | None, float], _Shared] = {}

    async def grade(
        self,
        grader: str,
        submissions: Sequence[Submission | Mapping[str, Any]],
        *,
        rubric: str | None = None,
        deadline_s: float = DEFAULT_DEADLINE_S,
        on_result: OnResult | None = None,
    ) -> list[Graded | Faulted]:
        if len(submissions) != 1:
            return await super().grade(
                grader, submissions, rubric=rubric, deadline_s=deadline_s, on_result=on_result
            )
        name = encode_submissions(check_name(grader), submissions, rubric or "")[0].id
        loop = asyncio.get_running_loop()
        if loop not in self._used_at:
            keeper = asyncio.create_task(self._keep_open())
            self._keepers.add(keeper)
            keeper.add_done_callback(self._keepers.discard)
        self._used_at[loop] = loop.time()
        window = (loop, grader, rubric, deadline_s)
        shared = self._windows.setdefault(window, _Shared())
        if name in shared.submissions:
            return await super().grade(
                grader, submissions, rubric=rubric, deadline_s=deadline_s, on_result=on_result
            )
        shared.submissions[name] = submissions[0]
        own_future = shared.results[name] = loop.create_future()
        if shared.sending is None:
            shared.sending = asyncio.create_task(self._send(window, shared))
        shared.callers += 1
        try:
            await asyncio.wait([own_future, shared.sending], return_when=asyncio.FIRST_COMPLETED)
            if not own_future.done():
                await shared.sending  # raises what ended it
            result = own_future.result()
        finally:
            shared.callers -= 1
            if not shared.callers and not all(future.done() for future in shared.results.values()):
                shared.sending.cancel()
                if self._windows.get(window) is shared:
                    del self._windows[window]
        if isinstance(result, Misuse):
            raise result
        if on_result is not None:
            on_result(0, result)
        return [result]

    async def _keep_open(self) -> None:
        """Hold the connections of this loop open between calls. `asyncio.run` cancels this at its
        end."""
        loop = asyncio.get_running_loop()
        try:
            async with self:
                left_s = IDLE_S
                while left_s > 0:
                    await asyncio.sleep(left_s)
                    left_s = self._used_at[loop] + IDLE_S - loop.time()
        finally:
            del self._used_at[loop]

    async def _send(
        self, window: tuple[asyncio.AbstractEventLoop, str, str | None, float], shared: _Shared
    ) -> None:
        # Nothing is in flight: calls that start in the same turn of the loop suffice, and a lone
        # call does not wait.
        await asyncio.sleep(self._window_s if self._n_sending else 0)
        del self._windows[window]
        _, grader, rubric, deadline_s = window
        grade = super().grade
        submissions = list(shared.submissions.values())
        results = list(shared.results.values())

        def report_result(index: int, result: Graded | Faulted) -> None:
            results[index].set_result(result)

        self._n_sending += 1
        try:
            await grade(
                grader, submissions, rubric=rubric, deadline_s=deadline_s, on_result=report_result
            )
        except Misuse:
            # The service refuses a request as a whole; each submission alone shows which of them it
            # refuses.
            waiting = [index for index, result in enumerate(results) if not result.done()]
            calls = (
                grade(grader, [submissions[index]], rubric=rubric, deadline_s=deadline_s)
                for index in waiting
            )
            alone = await asyncio.gather(*calls, return_exceptions=True)
            for index, outcome in zip(waiting, alone, strict=True):
                results[index].set_result(
                    _require_misuse(outcome) if isinstance(outcome, BaseException) else outcome[0]
                )
        finally:
            self._n_sending -= 1


def _require_misuse(error: BaseException) -> Misuse:
    if isinstance(error, Misuse):
        return error
    raise error
