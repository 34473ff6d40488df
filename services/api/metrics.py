"""What an API process counts, for Prometheus. Every label has few values: nothing that a caller sends is one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gradus.contract import Faulted, Graded, GraderName
from gradus.errors import FaultKind, QueueFault
from services.api.roster import Roster
from services.broker import Broker

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "gradus_api_requests", "HTTP requests answered", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "gradus_api_request_seconds",
            "Time from request to last byte",
            ["method", "route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._results = Counter("gradus_api_results", "Results given out", ["grader", "status"], registry=self.registry)
        self._cached = Counter(
            "gradus_api_cached_results", "Verdicts given out from the cache", ["grader"], registry=self.registry
        )
        self._faults = Counter("gradus_api_faults", "Faults given out", ["grader", "kind"], registry=self.registry)
        self._depth = Gauge("gradus_queue_depth", "Jobs queued or running", ["grader"], registry=self.registry)
        self._workers = Gauge("gradus_workers", "Live workers", ["grader"], registry=self.registry)
        self._broker_up = Gauge("gradus_broker_up", "1 if the broker answers", registry=self.registry)
        for grader in GraderName:
            self._start_at_zero(grader.value)

    def _start_at_zero(self, grader: str) -> None:
        # A series that first appears with its first fault has no rate before it: alerts would miss that one.
        self._results.labels(grader, "graded")
        self._results.labels(grader, "faulted")
        self._cached.labels(grader)
        for kind in FaultKind:
            self._faults.labels(grader, kind.value)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def result(self, grader: GraderName, result: Graded | Faulted) -> None:
        self._results.labels(grader.value, result.status).inc()
        if isinstance(result, Faulted):
            self._faults.labels(grader.value, result.fault.kind.value).inc()
        elif result.cached:
            self._cached.labels(grader.value).inc()

    async def exposition(self, broker: Broker, roster: Roster) -> bytes:
        """The text for Prometheus; the queue is asked while it is written."""
        try:
            live = await roster.live()
            for grader in GraderName:
                self._depth.labels(grader.value).set(await broker.depth(grader.value))
                self._workers.labels(grader.value).set(sum(info.workers for info in live if info.name is grader))
            self._broker_up.set(1)
        except QueueFault:
            self._broker_up.set(0)
        return generate_latest(self.registry)
