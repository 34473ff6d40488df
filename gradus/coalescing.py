"""`CoalescingClient`: `RewardClient` for trainers that grade completions one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradus.client import OnResult, RewardClient, encoded
from gradus.contract import DEFAULT_DEADLINE_S, Faulted, Graded, Submission
from gradus.descriptions import checked_name
from gradus.errors import Misuse

WINDOW_S = 0.005


@dataclass(eq=False, slots=True)
class _Shared:
    """The submissions of calls that are sent as one, by id, and the task that sends them."""

    submissions: dict[str, Submission | Mapping[str, Any]] = field(default_factory=dict)
    callers: int = 0
    results: asyncio.Task[dict[str, Graded | Faulted | Misuse]] | None = None


class CoalescingClient(RewardClient):
    """`RewardClient` that sends calls of one submission together.

    Calls on one event loop with the same grader, rubric and deadline that arrive within `window_s` seconds become one
    call. Each gets its own result. A submission that is refused raises Misuse in its own call alone. Calls with several
    submissions, and those whose id is in the current window already, are sent as they are.
    """

    def __init__(
        self, urls: str | Sequence[str] = "http://127.0.0.1:8000", *, window_s: float = WINDOW_S, **more: Any
    ) -> None:
        """`more`: the options of `RewardClient`."""
        super().__init__(urls, **more)
        self._window_s = window_s
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
            return await super().grade(grader, submissions, rubric=rubric, deadline_s=deadline_s, on_result=on_result)
        name = encoded(checked_name(grader), submissions, rubric or "")[0].id
        window = (asyncio.get_running_loop(), grader, rubric, deadline_s)
        shared = self._windows.setdefault(window, _Shared())
        if name in shared.submissions:
            return await super().grade(grader, submissions, rubric=rubric, deadline_s=deadline_s, on_result=on_result)
        shared.submissions[name] = submissions[0]
        if shared.results is None:
            shared.results = asyncio.create_task(self._send(window, shared))
        shared.callers += 1
        try:
            result = (await asyncio.shield(shared.results))[name]
        finally:
            shared.callers -= 1
            if not shared.callers:  # the last caller was cancelled, or all have their results
                shared.results.cancel()
                if self._windows.get(window) is shared:
                    del self._windows[window]
        if isinstance(result, Misuse):
            raise result
        if on_result is not None:
            on_result(0, result)
        return [result]

    async def _send(
        self, window: tuple[asyncio.AbstractEventLoop, str, str | None, float], shared: _Shared
    ) -> dict[str, Graded | Faulted | Misuse]:
        await asyncio.sleep(self._window_s)
        del self._windows[window]
        _, grader, rubric, deadline_s = window
        grade, given = super().grade, list(shared.submissions.values())
        try:
            found: Sequence[Graded | Faulted | Misuse] = await grade(
                grader, given, rubric=rubric, deadline_s=deadline_s
            )
        except Misuse:
            # The service refuses a request as a whole; each submission alone shows which of them it refuses.
            calls = (grade(grader, [one], rubric=rubric, deadline_s=deadline_s) for one in given)
            alone = await asyncio.gather(*calls, return_exceptions=True)
            found = [_refusal(one) if isinstance(one, BaseException) else one[0] for one in alone]
        return dict(zip(shared.submissions, found, strict=True))


def _refusal(error: BaseException) -> Misuse:
    if isinstance(error, Misuse):
        return error
    raise error
