"""What an API process counts, for Prometheus. Every label has few values: nothing that a caller sends is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gradus.contract import Faulted, Graded
from gradus.errors import FaultKind, QueueFault
from services.api.grader_registry import GraderRegistry
from services.broker import Broker

REWARDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999, 1.0)
GRADE_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
MAX_FLAGS = 100
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600)


class Waiting(NamedTuple):
    """What this process waits for from one grader."""

    jobs: int
    oldest_s: float
    stalled_s: float
    """Seconds for which something waited and no result came; 0 when nothing waits."""


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known_flags: set[str] = set()
        self._make_metrics_of_requests()
        self._make_metrics_of_results()
        self._make_metrics_of_the_queue()

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"gradus_{name}", about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"gradus_{name}", about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"gradus_{name}", about, labels, buckets=buckets, registry=self.registry)

    def _make_metrics_of_requests(self) -> None:
        self._requests = self._counter("api_requests", "HTTP requests answered", "method", "route", "status")
        about = "Time from request to last byte"
        self._seconds = self._histogram("api_request_seconds", about, SECONDS, "method", "route")
        self.connections = self._gauge("api_connections", "Open connections")

    def _make_metrics_of_results(self) -> None:
        self._results = self._counter("api_results", "Results given out", "grader", "status")
        self._cached = self._counter("api_cached_results", "Verdicts given out from the cache", "grader")
        self._faults = self._counter("api_faults", "Faults given out", "grader", "kind")
        self._stages = self._counter("api_verdicts", "Verdicts given out, by the stage reached", "grader", "stage")
        self._rewards = self._histogram("api_reward", "Rewards given out", REWARDS, "grader")
        self._flags = self._counter("api_flags", "Verdicts that carry a flag", "grader", "flag")
        about = "Wall time of grading, of verdicts not from the cache"
        self._grading = self._histogram("api_grade_seconds", about, GRADE_SECONDS, "grader", "stage")
        self._cpu = self._counter("api_cpu_seconds", "CPU time in boxes, of verdicts not from the cache", "grader")

    def _make_metrics_of_the_queue(self) -> None:
        self._jobs = self._gauge("queue_jobs", "Jobs by where they are", "grader", "state")
        self._depth = self._gauge("queue_depth", "Jobs queued or running", "grader")
        self._waiting = self._gauge("api_waiting", "Jobs this process waits for", "grader")
        self._oldest = self._gauge("api_oldest_wait_seconds", "Since the request that waits longest came", "grader")
        self._stalled = self._gauge("api_stalled_seconds", "Something waits and no result came", "grader")
        self._workers = self._gauge("workers", "Live workers", "grader")
        self._broker_up = self._gauge("broker_up", "1 if the broker answers")

    def _start_at_zero(self, grader: str) -> None:
        # A series that first appears with its first fault has no rate before it: alerts would miss that one.
        self._results.labels(grader, "graded")
        self._results.labels(grader, "faulted")
        self._cached.labels(grader)
        self._cpu.labels(grader)
        for kind in FaultKind:
            self._faults.labels(grader, kind.value)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def result(self, grader: str, result: Graded | Faulted) -> None:
        self._results.labels(grader, result.status).inc()
        if isinstance(result, Faulted):
            self._faults.labels(grader, result.fault.kind.value).inc()
            return
        self._rewards.labels(grader).observe(result.reward)
        self._stages.labels(grader, result.stage.value).inc()
        for flag in result.flags:
            self._flags.labels(grader, self._flag(flag)).inc()
        if result.cached:
            self._cached.labels(grader).inc()
        else:
            self._grading.labels(grader, result.stage.value).observe(result.wall_ms / 1000)
            self._cpu.labels(grader).inc(max(result.cpu_ms, 0) / 1000)

    def _flag(self, flag: str) -> str:
        """Flags are the graders' words, a dozen; a grader that makes them up as it goes must not fill the memory."""
        if len(self._known_flags) < MAX_FLAGS:
            self._known_flags.add(flag)
        return flag if flag in self._known_flags else "other"

    async def exposition(self, broker: Broker, registry: GraderRegistry, waits: Mapping[str, Waiting]) -> bytes:
        """The text for Prometheus; the queue is asked while it is written. `waits`: of each known grader."""
        for grader, waiting in waits.items():
            self._start_at_zero(grader)
            self._waiting.labels(grader).set(waiting.jobs)
            self._oldest.labels(grader).set(waiting.oldest_s)
            self._stalled.labels(grader).set(waiting.stalled_s)
        try:
            live = await registry.live()
            for grader in waits:
                queue_stats = await broker.queue_stats(grader)
                self._depth.labels(grader).set(queue_stats.queued + queue_stats.running)
                for state in ("queued", "running", "restarted"):
                    self._jobs.labels(grader, state).set(getattr(queue_stats, state))
                self._jobs.labels(grader, "buried").set(queue_stats.dead_letters)
                self._workers.labels(grader).set(sum(info.workers for info in live if info.name == grader))
            self._broker_up.set(1)
        except QueueFault:
            self._broker_up.set(0)
        return generate_latest(self.registry)
