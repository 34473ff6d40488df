"""Prometheus metrics of one worker. No label comes from a caller or a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from gradus.contract import Faulted, Graded, Stage
from gradus.errors import FaultKind, Misuse
from services.broker import Claim
from services.metric_children import with_kept_children
from services.sandbox.persistent_box import BwrapPersistentBox

SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
REWARDS = tuple(n / 10 for n in range(11))
MAX_FLAGS = 50
"""Kinds of flags with a series of their own; the rest is counted as `other`."""


class _BoxResets(Collector):
    def collect(self) -> Iterator[CounterMetricFamily]:
        about = "Persistent boxes that were lost and replaced"
        yield CounterMetricFamily(
            "gradus_worker_box_resets", about, value=BwrapPersistentBox.resets
        )


class WorkerMetrics:
    """Counters and histograms of jobs, verdicts and faults."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._flags_seen: set[str] = set()
        self._jobs = self._counter(
            "jobs", "Jobs by outcome: passed, failed, faulted, dropped", "outcome"
        )
        self._verdicts = self._counter("verdicts", "Verdicts by the stage reached", "stage")
        self._flags = self._counter(
            "flags", "Flags of verdicts, by the part before the colon", "flag"
        )
        self._faults = self._counter("faults", "Faults by kind", "kind")
        self._cpu = self._counter("cpu_seconds", "CPU seconds in boxes")
        self._redelivered = self._counter(
            "redeliveries", "Claimed jobs that another worker had started"
        )
        self._dead_letters = self._counter("dead_letters", "Jobs that became dead letters")
        self._seconds = self._histogram(
            "grade_seconds", "Seconds from claim to result", SECONDS, "stage"
        )
        self._rewards = self._histogram("reward", "Rewards of verdicts", REWARDS)
        self.registry.register(_BoxResets())
        # A series that first appears with its first fault has no rate before it: alerts would miss
        # that one.
        for outcome in ("passed", "failed", "faulted", "dropped"):
            self._jobs.labels(outcome)
        for stage in Stage:
            self._verdicts.labels(stage.value)
        for kind in FaultKind:
            self._faults.labels(kind.value)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return with_kept_children(
            Counter(f"gradus_worker_{name}", about, labels, registry=self.registry)
        )

    def _histogram(
        self, name: str, about: str, buckets: Sequence[float], *labels: str
    ) -> Histogram:
        made = Histogram(
            f"gradus_worker_{name}", about, labels, buckets=buckets, registry=self.registry
        )
        return with_kept_children(made)

    def claimed(self, claims: Sequence[Claim]) -> None:
        self._redelivered.inc(sum(claim.deliveries > 1 for claim in claims))

    def answered(self, result: Graded | Faulted, seconds: float, *, dead_letter: bool) -> None:
        self._dead_letters.inc(dead_letter)
        if isinstance(result, Faulted):
            self._jobs.labels("faulted").inc()
            self._faults.labels(result.fault.kind.value).inc()
            self._seconds.labels("fault").observe(seconds)
            return
        self._jobs.labels("passed" if result.passed else "failed").inc()
        self._verdicts.labels(result.stage.value).inc()
        self._seconds.labels(result.stage.value).observe(seconds)
        self._rewards.observe(result.reward)
        self._cpu.inc(result.cpu_ms / 1000)
        for flag in result.flags:
            kind = flag.partition(":")[0]
            if len(self._flags_seen) < MAX_FLAGS:
                self._flags_seen.add(kind)
            self._flags.labels(kind if kind in self._flags_seen else "other").inc()

    def dropped(self) -> None:
        self._jobs.labels("dropped").inc()

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Answer /metrics in a thread of its own until the process ends; the port. Raises Misuse
        when it is taken."""
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise Misuse(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        return int(server.server_port)
