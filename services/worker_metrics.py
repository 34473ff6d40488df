"""Prometheus metrics of one worker. No label comes from a caller or a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from gradus.contract import Faulted, Graded
from gradus.errors import Misuse
from services.broker import Claim
from services.sandbox.persistent_box import PersistentBox

SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class _BoxResets(Collector):
    def collect(self) -> Iterator[CounterMetricFamily]:
        about = "Persistent boxes that were lost and replaced"
        yield CounterMetricFamily("gradus_worker_box_resets", about, value=PersistentBox.resets)


class WorkerMetrics:
    """Counters of jobs and the time that grades take. The API counts verdicts, flags and faults."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._jobs = Counter(
            "gradus_worker_jobs",
            "Jobs by outcome: passed, failed, faulted, dropped",
            ["outcome"],
            registry=self.registry,
        )
        self._redelivered = Counter(
            "gradus_worker_redeliveries",
            "Claimed jobs that another worker had started",
            registry=self.registry,
        )
        self._dead_letters = Counter(
            "gradus_worker_dead_letters", "Jobs that became dead letters", registry=self.registry
        )
        self._seconds = Histogram(
            "gradus_worker_grade_seconds",
            "Seconds from claim to result",
            ["stage"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.registry.register(_BoxResets())
        # A series that first appears with its first fault has no rate before it.
        for outcome in ("passed", "failed", "faulted", "dropped"):
            self._jobs.labels(outcome)

    def record_claims(self, claims: Sequence[Claim]) -> None:
        self._redelivered.inc(sum(claim.deliveries > 1 for claim in claims))

    def record_result(self, result: Graded | Faulted, seconds: float, *, dead_letter: bool) -> None:
        self._dead_letters.inc(dead_letter)
        if isinstance(result, Faulted):
            self._jobs.labels("faulted").inc()
            self._seconds.labels("fault").observe(seconds)
        else:
            self._jobs.labels("passed" if result.passed else "failed").inc()
            self._seconds.labels(result.stage.value).observe(seconds)

    def record_dropped_job(self) -> None:
        self._jobs.labels("dropped").inc()

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Answer /metrics in a thread of its own until the process ends; the port. Raises Misuse
        when it is taken."""
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise Misuse(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        return int(server.server_port)
