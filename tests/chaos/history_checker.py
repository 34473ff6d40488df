"""Who asks, and what was answered. Knows only submissions and HTTP answers: no broker, no worker,
no journal.

The invariant, held against every HTTP answer whatever else happens:

1. Nothing is lost. A client that repeats what failed (no connection, a broken one, 429, 503, a
   retryable fault) has one settling result for each submission before its patience ends: a verdict,
   or for poison the fault `worker`.
2. Nothing is answered twice. A whole answer has one result per submission, in order; a stream,
   broken or whole, never two; and every verdict on a submission, by whatever API and however often
   it is asked for, is the same - the same run's, unless Redis died with its last writes unwritten:
   then one that says the same (`ANOTHER_RUN` counts them).
3. Nothing is made wrong. Each verdict is the one of an undisturbed run in all but its times; poison
   gets no verdict; a fault has no reward. A healthy submission's fault is retryable, of kind
   `queue` or `deadline` - or `worker` where its workers were killed under it three times over,
   which is counted, and which asking again turns into the verdict.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.worker import verdict

ANOTHER_RUN = "verdicts of another run than the first answer's"
TIMES = ("cpu_ms", "wall_ms", "cached")
RETRIED = (429, 503)
Result = dict[str, Any]


def make_completions(number: int, ms: float, how: str = "sleep") -> list[str]:
    """Completions that are graded in `ms` milliseconds each, all different. `how`: `sleep`, or
    `burn` for CPU time."""
    return [f"{how} {ms:g} number {n} of {random.getrandbits(64)}" for n in range(number)]


def poison() -> str:
    return f"poison number 0 of {random.getrandbits(64)}"


@dataclass(slots=True)
class History:
    """Everything asked and answered. `breaches` says in words where the invariant does not hold; it
    must stay empty."""

    completions: dict[str, str] = field(default_factory=dict)
    """By submission id."""
    settled: dict[str, Result] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """From the first asking to the settling result."""
    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    faults_of_healthy: list[str] = field(default_factory=list)
    """Faults of submissions that are no poison and whose workers died three times."""
    _asked_at: dict[str, float] = field(default_factory=dict)

    def add(self, completion: str) -> str:
        submission_id = f"s{len(self.completions)}"
        self.completions[submission_id] = completion
        return submission_id

    def record_request(self, ids: Sequence[str]) -> None:
        self.counts["requests"] += 1
        for one in ids:
            self._asked_at.setdefault(one, time.monotonic())

    def lost(self) -> list[str]:
        return [one for one in self.completions if one not in self.settled]

    def check_response(self, asked: Sequence[str], results: Sequence[Result]) -> None:
        if [result["id"] for result in results] != list(asked):
            self.breaches.append(
                f"asked for {asked}, answered {[result['id'] for result in results]}"
            )
        for result in results:
            self.check_result(result)

    def check_result(self, result: Result) -> None:
        self.counts["results"] += 1
        if result["id"] not in self.completions:
            self.breaches.append(f"nobody asked for {result['id']}")
        elif result["status"] == "graded":
            self._check_verdict(result)
        else:
            self._check_fault(result)

    def _check_verdict(self, result: Result) -> None:
        expected = verdict(result["id"], self.completions[result["id"]]).model_dump(mode="json")
        if self._is_poison(result["id"]) or _drop_times(result) != _drop_times(expected):
            self.breaches.append(f"wrong verdict: {result}")
        self._settle(result)

    def _check_fault(self, result: Result) -> None:
        fault = result["fault"]
        self.counts[f"fault: {fault['kind']}"] += 1
        passing = fault["kind"] in ("queue", "deadline") and fault["retryable"]
        died = fault["kind"] == "worker" and not fault["retryable"]
        if "reward" in result or not (passing or died):
            self.breaches.append(f"wrong fault: {result}")
        if died and self._is_poison(result["id"]):
            self._settle(result)
        elif died:
            self.counts["healthy submissions whose workers died three times"] += 1
            self.faults_of_healthy.append(f"a healthy submission's fault: {result}")

    def _settle(self, result: Result) -> None:
        first = self.settled.setdefault(result["id"], result)
        now = time.monotonic()
        self.seconds.setdefault(result["id"], now - self._asked_at.get(result["id"], now))
        if _drop_times(first) != _drop_times(result):
            self.breaches.append(f"two results: {first} and {result}")
        # no two runs take the same time to the last digit, so the time tells runs apart
        self.counts[ANOTHER_RUN] += first.get("wall_ms") != result.get("wall_ms")

    def _is_poison(self, submission_id: str) -> bool:
        return self.completions[submission_id].startswith("poison")


def _drop_times(result: Result) -> Result:
    return {name: value for name, value in result.items() if name not in TIMES}


class Asker:
    """A client that repeats what failed, and now and then leaves before it is answered."""

    def __init__(
        self, history: History, urls: Sequence[str], *, at_once: int = 8, leaving: float = 0.0,
        patience_s: float = 120.0, deadline_s: float = 30.0, seed: int = 0,
    ) -> None:  # fmt: skip
        """`leaving`: the share of requests that are left early."""
        self._history = history
        self._urls = urls
        self._leaving = leaving
        self._patience_s = patience_s
        self._deadline_s = deadline_s
        self._random = random.Random(seed)
        self._slots = asyncio.Semaphore(at_once)

    async def ask(self, completions: Sequence[str], batch_size: int = 16) -> None:
        """Until everything is settled or patience ends."""
        ids = [self._history.add(completion) for completion in completions]
        async with httpx.AsyncClient(timeout=httpx.Timeout(self._deadline_s + 30)) as http:
            batches = [ids[at : at + batch_size] for at in range(0, len(ids), batch_size)]
            await asyncio.gather(*(self._settle(http, batch) for batch in batches))

    async def ask_again(self) -> None:
        """Once more for everything that has a verdict, at all APIs: after the disturbances each
        answer stands."""
        ids = [one for one, result in self._history.settled.items() if result["status"] == "graded"]
        async with httpx.AsyncClient(timeout=httpx.Timeout(self._deadline_s + 30)) as http:
            for url in self._urls:
                for at in range(0, len(ids), 500):
                    await self._ask_until_answered(
                        http, f"{url}/v1/grade/ocaml", ids[at : at + 500]
                    )

    async def _ask_until_answered(
        self, http: httpx.AsyncClient, url: str, waiting: list[str]
    ) -> None:
        """An API that was stopped by the last disturbance may end only now."""
        async with asyncio.timeout(self._patience_s):
            while True:
                try:
                    await self._grade_batch(http, url, waiting)
                    return
                except httpx.TransportError:
                    await asyncio.sleep(0.2)

    async def _settle(self, http: httpx.AsyncClient, batch: list[str]) -> None:
        async with self._slots:
            give_up_at = time.monotonic() + self._patience_s
            while waiting := [one for one in batch if one not in self._history.settled]:
                if time.monotonic() > give_up_at:
                    return
                await self._attempt(http, waiting)
                await asyncio.sleep(self._random.uniform(0, 0.2))

    async def _attempt(self, http: httpx.AsyncClient, waiting: list[str]) -> None:
        url = f"{self._random.choice(self._urls)}/v1/grade/ocaml"
        leaves_s = (
            self._random.uniform(0.01, 0.4) if self._random.random() < self._leaving else None
        )
        self._history.record_request(waiting)
        try:
            async with asyncio.timeout(leaves_s):
                await (self._grade_batch if self._random.random() < 0.5 else self._grade_stream)(
                    http, url, waiting
                )
        except TimeoutError:
            self._history.counts["requests left by the client"] += 1
        except httpx.ConnectError:
            self._history.counts["requests that met no API"] += 1
        except httpx.TransportError:
            self._history.counts["requests whose API died under them"] += 1

    async def _grade_batch(self, http: httpx.AsyncClient, url: str, waiting: list[str]) -> None:
        answer = await http.post(url, json=self._body(waiting))
        if self._is_answered(answer):
            self._history.check_response(waiting, answer.json()["results"])

    async def _grade_stream(self, http: httpx.AsyncClient, url: str, waiting: list[str]) -> None:
        seen: list[str] = []
        async with http.stream("POST", f"{url}/stream", json=self._body(waiting)) as answer:
            if not self._is_answered(answer):
                return
            rest = b""
            async for chunk in answer.aiter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):  # an empty one says that somebody is there
                    self._check_line(line, chunk, seen)
        if sorted(seen) != sorted(waiting):
            self._history.breaches.append(f"a whole stream for {waiting} has {seen}")

    def _check_line(self, line: bytes, chunk: bytes, seen: list[str]) -> None:
        try:
            result = json.loads(line)
        except ValueError:
            self._history.breaches.append(
                f"no JSON: line {line!r} after {len(seen)} in chunk {chunk!r}"
            )
            return
        self._history.check_result(result)
        if result["id"] in seen:
            self._history.breaches.append(f"answered twice in one stream: {result}")
        seen.append(result["id"])

    def _is_answered(self, answer: httpx.Response) -> bool:
        self._history.counts[f"status {answer.status_code}"] += 1
        if answer.status_code not in (200, *RETRIED):
            self._history.breaches.append(f"status {answer.status_code}")
        return answer.status_code == 200

    def _body(self, waiting: list[str]) -> dict[str, Any]:
        completions = self._history.completions
        submissions = [
            {"id": one, "completion": completions[one], "task": {"tests": "let () = assert true"}}
            for one in waiting
        ]
        return {"submissions": submissions, "deadline_s": self._deadline_s}
