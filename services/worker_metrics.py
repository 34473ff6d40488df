"""Metrics and health of one worker over HTTP: `/metrics`, `/livez`, `/readyz`.

No label comes from a caller or a model.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from gradus.contract import Faulted, Graded
from gradus.errors import Misuse
from services.broker import Claim
from services.broker.workers import Registration
from services.sandbox.persistent_box import PersistentBox

STALE_S = 30.0
"""Seconds without an attempt to renew leases after which the worker's loops count as dead. One
attempt lasts 5 s while Redis is away."""
SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class _BoxResets(Collector):
    def collect(self) -> Iterator[CounterMetricFamily]:
        about = "Persistent boxes that were lost and replaced"
        yield CounterMetricFamily("gradus_worker_box_resets", about, value=PersistentBox.resets)


class WorkerHealth:
    """Whether the worker is alive and ready. Written by the event loop, read by another thread."""

    def __init__(self) -> None:
        self.registration: Registration | None = None
        """None until the grader proved itself and the queue answered."""
        self._renewed_at: float | None = None

    def record_renewal(self) -> None:
        """Record that leases were renewed, or that it was tried: an outage of Redis is no failure
        of the worker."""
        self._renewed_at = time.monotonic()

    def explain_failure(self) -> str:
        """Return why the worker must be restarted; empty when it need not, or is starting."""
        silent_s = 0.0 if self._renewed_at is None else time.monotonic() - self._renewed_at
        if silent_s > STALE_S:
            return f"no lease was renewed for {silent_s:.0f} s: the loops of this worker are dead"
        return ""

    def explain_unready(self) -> str:
        """Return why the worker gets no jobs; empty when it does."""
        if self.registration is None:
            return "starting: the grader is not tested yet, or the queue does not answer"
        if not self.registration.is_current:
            return "not registered: the queue does not accept heartbeats; see the worker's log"
        return self.explain_failure()


class WorkerMetrics:
    """Counters of jobs and the time that grades take. The API counts verdicts, flags and faults."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.health = WorkerHealth()
        ready = Gauge(
            "gradus_worker_ready",
            "1 if the worker is tested and registered",
            registry=self.registry,
        )
        ready.set_function(lambda: not self.health.explain_unready())
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
        """Answer /metrics, /livez and /readyz in a thread of its own until the process ends; the
        port. Raises Misuse when it is taken."""
        answer_metrics = make_wsgi_app(self.registry)
        checks = {"/livez": self.health.explain_failure, "/readyz": self.health.explain_unready}

        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            check = checks.get(environ["PATH_INFO"])
            if check is None:
                metrics: Iterable[bytes] = answer_metrics(environ, start_response)
                return metrics
            problem = check()
            status = "503 Service Unavailable" if problem else "200 OK"
            start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{problem or 'ok'}\n".encode()]

        try:
            server = make_server(host, port, answer, ThreadingWSGIServer, _SilentHandler)
        except OSError as error:
            raise Misuse(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        return server.server_port


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log no request: probes and scrapes are many."""
