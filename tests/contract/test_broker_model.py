"""Both brokers held, step by step, to a model that fits on a page. No lease lapses and nobody dies
here."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.broker import Broker, BrokerSettings, Claim, Job, QueueFull
from tests.contract.test_broker import Place, assert_every_key_expires

T = TypeVar("T")
JOBS = {name: Job(name, "ocaml", json.dumps({"of": name})) for name in "abcdef"}
TERMS = BrokerSettings(lease_s=600, max_depth=4)
SOON_S = 20.0


@dataclass
class Held:
    """A claim, and whether it is good still."""

    claim: Claim
    good: bool = True


class AgainstTheModel(RuleBasedStateMachine):
    """Two processes ask, two others work. What the model says of a job: who wants it, where it is,
    its answer."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.place = Place(url)
        self.askers = [self.place.open(TERMS) for _ in range(2)]
        self.workers = [self.place.open(TERMS) for _ in range(2)]
        self.queued: list[str] = []
        self.running: dict[str, Held] = {}
        self.wishes: Counter[tuple[int, str]] = Counter()
        self.cached: dict[str, str] = {}
        self.uncached: dict[str, str] = {}
        self.starts: Counter[str] = Counter()
        self.claims: list[Held] = []

    def do(self, act: Awaitable[T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(act, SOON_S))

    def wanted(self, job: str) -> bool:
        return any(self.wishes[asker, job] for asker in range(2))

    @rule(asker=st.integers(0, 1), names=st.sets(st.sampled_from(sorted(JOBS)), min_size=1))
    def submit(self, asker: int, names: set[str]) -> None:
        asked = sorted(names - self.cached.keys())
        new = [one for one in asked if one not in self.queued and one not in self.running]
        submitting = self.askers[asker].submit([JOBS[one] for one in sorted(names)])
        if new and len(self.queued) + len(self.running) + len(new) > TERMS.max_depth:
            with pytest.raises(QueueFull):
                self.do(submitting)
            return
        assert self.do(submitting) == {one: self.cached[one] for one in names & self.cached.keys()}
        self.wishes.update((asker, one) for one in asked)
        self.queued += new
        for one in new:
            self.uncached.pop(one, None)
            self.starts[one] = 0

    @rule(asker=st.integers(0, 1), name=st.sampled_from(sorted(JOBS)))
    def cancel(self, asker: int, name: str) -> None:
        if not self.wishes[asker, name]:
            return
        self.do(self.askers[asker].cancel("ocaml", [name]))
        self.wishes[asker, name] -= 1
        if name in self.queued and not self.wanted(name):
            self.queued.remove(name)

    @rule(worker=st.integers(0, 1), limit=st.integers(1, 3))
    def claim(self, worker: int, limit: int) -> None:
        claims = self.do(self.workers[worker].claim("ocaml", f"w{worker}", limit, 0))
        assert len(claims) == min(limit, len(self.queued))
        for claim in claims:
            self.queued.remove(claim.job.id)
            self.starts[claim.job.id] += 1
            assert (claim.job, claim.deliveries) == (JOBS[claim.job.id], self.starts[claim.job.id])
            self.running[claim.job.id] = Held(claim)
            self.claims.append(self.running[claim.job.id])

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 50), cache=st.booleans(), dead_letter=st.booleans())
    def finish(self, which: int, cache: bool, dead_letter: bool) -> None:
        held = self.claims[which % len(self.claims)]
        name = held.claim.job.id
        text = json.dumps([which, cache])
        assert (
            self.do(
                self.workers[which % 2].finish(
                    held.claim, text, cache=cache, dead_letter=dead_letter
                )
            )
            == held.good
        )
        if not held.good:
            return
        held.good = False
        del self.running[name]
        (self.cached if cache else self.uncached)[name] = text
        for asker in range(2):
            if self.wishes.pop((asker, name), 0):
                assert self.do(answered(self.askers[asker], name)) == [(name, text)]

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 50))
    def release(self, which: int) -> None:
        held = self.claims[which % len(self.claims)]
        name = held.claim.job.id
        if held.claim.deliveries > 1:  # a job's last start is another story
            return
        self.do(self.workers[which % 2].release(held.claim))
        if held.good:
            held.good = False
            del self.running[name]
            self.queued += [name] if self.wanted(name) else []

    @precondition(lambda self: self.running)
    @rule()
    def renew(self) -> None:
        claims = [held.claim for held in self.running.values()]
        unwanted = {claim.job.id for claim in self.do(self.workers[0].renew(claims))}
        assert unwanted == {name for name in self.running if not self.wanted(name)}

    @invariant()
    def tells_what_the_model_tells(self) -> None:
        for broker in self.askers:
            assert self.do(broker.results(sorted(JOBS))) == self.uncached | self.cached
        stats = self.do(self.workers[0].get_queue_stats("ocaml"))
        assert (stats.queued, stats.running) == (len(self.queued), len(self.running))
        assert self.do(self.askers[0].depth("ocaml")) == len(self.queued) + len(self.running)

    def teardown(self) -> None:
        self.do(self.place.close())
        if self.place.redis_url is not None:
            self.do(assert_every_key_expires(self.place.redis_url, self.place.prefix))
        self.loop.close()


async def answered(broker: Broker, name: str) -> list[tuple[str, str]]:
    return [answer async for answer in broker.wait([name], SOON_S)]


@pytest.mark.parametrize(
    ("kind", "number"),
    [("memory", 60), ("redis", 20), pytest.param("redis", 100, marks=pytest.mark.slow)],
)
def test_whatever_is_done_to_it_a_broker_is_as_its_model(
    kind: str, number: int, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("redis_url") if kind == "redis" else None
    machine: Callable[[], Any] = lambda: AgainstTheModel(url)  # noqa: E731
    run_state_machine_as_test(
        machine, settings=settings(max_examples=number, stateful_step_count=30, deadline=None)
    )
