"""Prometheus metrics of an API process. No label has values from requests, so each has few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gradus.contract import Faulted, Graded
from gradus.errors import FaultKind, QueueFault
from services.api.grader_registry import GraderRegistry
from services.broker import Broker
from services.broker.jobs import BOUNDS

REWARDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999, 1.0)
GRADE_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
MAX_FLAGS = 100  # flags with a series of their own; graders have about a dozen. Bounds the memory.
SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600)


class Waiting(NamedTuple):
    jobs: int
    oldest_s: float
    stalled_s: float
    """Seconds without a result while a job waits; 0 when none waits."""


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known_flags: set[str] = set()

        def make_counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"gradus_{name}", about, labels, registry=self.registry)

        def make_gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(f"gradus_{name}", about, labels, registry=self.registry)

        def make_histogram(
            name: str, about: str, buckets: Sequence[float], *labels: str
        ) -> Histogram:
            return Histogram(
                f"gradus_{name}", about, labels, buckets=buckets, registry=self.registry
            )

        self._requests = make_counter(
            "api_requests", "HTTP requests answered", "method", "route", "status"
        )
        about = "Requests that got 429, by the bound that was reached"
        self._refusals = make_counter("api_refusals", about, "bound")
        self._seconds = make_histogram(
            "api_request_seconds", "Seconds from request to last byte", SECONDS, "method", "route"
        )
        self.connections = make_gauge(
            "api_connections", "Open HTTP connections, without WebSockets"
        )

        self._results = make_counter("api_results", "Results returned", "grader", "status")
        self._cached = make_counter(
            "api_cached_results", "Verdicts returned from the cache", "grader"
        )
        self._faults = make_counter("api_faults", "Faults returned", "grader", "kind")
        self._stages = make_counter(
            "api_verdicts", "Verdicts returned, by the stage reached", "grader", "stage"
        )
        self._rewards = make_histogram("api_reward", "Rewards returned", REWARDS, "grader")
        self._flags = make_counter("api_flags", "Verdicts with a flag", "grader", "flag")
        self._grading = make_histogram(
            "api_grade_seconds",
            "Seconds of grading, without cached verdicts",
            GRADE_SECONDS,
            "grader",
            "stage",
        )
        about = (
            "Seconds from request to result that were not spent grading, without cached verdicts"
        )
        self._queue_wait = make_histogram("api_queue_wait_seconds", about, SECONDS, "grader")
        self._cpu = make_counter(
            "api_cpu_seconds", "CPU seconds in boxes, without cached verdicts", "grader"
        )

        self._jobs = make_gauge(
            "queue_jobs", "Jobs by state; buried: dead letters", "grader", "state"
        )
        self._depth = make_gauge("queue_depth", "Queued and running jobs", "grader")
        self._waiting = make_gauge("api_waiting", "Jobs that this process waits for", "grader")
        self._oldest = make_gauge(
            "api_oldest_wait_seconds", "Seconds since the longest-waiting request arrived", "grader"
        )
        self._stalled = make_gauge(
            "api_stalled_seconds", "Seconds without a result while a job waits", "grader"
        )
        self._workers = make_gauge("workers", "Live workers", "grader")
        self._broker_up = make_gauge("broker_up", "1 if Redis answers, else 0")
        self._memory_fill = make_gauge(
            "broker_memory_fill", "Used share of the memory limit of Redis"
        )

    def record_request(self, method: str, route: str, status: str, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)

    def record_refusal(self, bound: str) -> None:
        self._refusals.labels(bound).inc()

    def record_result(self, grader: str, result: Graded | Faulted, waited_s: float) -> None:
        """`waited_s`: seconds since its request arrived."""
        self._results.labels(grader, result.status).inc()
        if isinstance(result, Faulted):
            self._faults.labels(grader, result.fault.kind.value).inc()
            return
        self._rewards.labels(grader).observe(result.reward)
        self._stages.labels(grader, result.stage.value).inc()
        for flag in result.flags:
            if len(self._known_flags) < MAX_FLAGS:
                self._known_flags.add(flag)
            self._flags.labels(grader, flag if flag in self._known_flags else "other").inc()
        if result.cached:
            self._cached.labels(grader).inc()
        else:
            grading_s = result.wall_ms / 1000
            self._grading.labels(grader, result.stage.value).observe(grading_s)
            self._queue_wait.labels(grader).observe(max(waited_s - grading_s, 0.0))
            self._cpu.labels(grader).inc(max(result.cpu_ms, 0) / 1000)

    async def render_exposition(
        self, broker: Broker, registry: GraderRegistry, waits: Mapping[str, Waiting]
    ) -> bytes:
        """Return the text for Prometheus, with the queue's state now. `waits`: by known grader."""
        for bound in (*BOUNDS, "key", "bytes", "connections"):
            self._refusals.labels(bound)
        for grader, waiting in waits.items():
            # Series start at zero: one that appears with its first fault would have no rate.
            for status in ("graded", "faulted"):
                self._results.labels(grader, status)
            for kind in FaultKind:
                self._faults.labels(grader, kind.value)
            self._cached.labels(grader)
            self._cpu.labels(grader)
            self._waiting.labels(grader).set(waiting.jobs)
            self._oldest.labels(grader).set(waiting.oldest_s)
            self._stalled.labels(grader).set(waiting.stalled_s)
        try:
            live = await registry.list_live()
            for grader in waits:
                stats = await broker.get_queue_stats(grader)
                self._depth.labels(grader).set(stats.queued + stats.running)
                for state in ("queued", "running", "restarted"):
                    self._jobs.labels(grader, state).set(getattr(stats, state))
                self._jobs.labels(grader, "buried").set(stats.dead_letters)
                self._workers.labels(grader).set(
                    sum(info.workers for info in live if info.name == grader)
                )
            self._memory_fill.set(await broker.get_memory_fill())
            self._broker_up.set(1)
        except QueueFault:
            self._broker_up.set(0)
        return generate_latest(self.registry)
