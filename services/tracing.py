"""Spans of requests and grades, for the OpenTelemetry collector that the environment (`OTEL_*`)
names.

The span of a grade is a child of the span of its request: the job carries its `traceparent`. Spans
hold names, counts, outcomes and times; no text of a caller or a model. Without a collector
OpenTelemetry is not imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pydantic import ValidationError

from gradus.contract import Faulted, Graded
from gradus.errors import Misuse
from services.broker import Claim
from services.broker.jobs import JobPayload

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

TRACEPARENT: ContextVar[str | None] = ContextVar("traceparent", default=None)
"""Trace context of the request under way, for the jobs that it queues."""
_PACKAGES_MISSING = (
    "the environment asks for traces (OTEL_...), which need OpenTelemetry: pip install"
    " 'gradus-rl[otel]', or set OTEL_TRACES_EXPORTER=none"
)


class Spans:
    """Made by `spans`. Sends in a thread of its own."""

    def __init__(self, resource: Resource, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        # Not the global provider: what libraries say of themselves there could quote a submission.
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("gradus")
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, headers: Mapping[str, str]) -> Iterator[Span]:
        """A span for the request with these headers, and `TRACEPARENT` for its jobs, while the
        block runs."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        parent = self._propagator.extract(
            {name: headers[name] for name in self._propagator.fields if name in headers}
        )
        with self._tracer.start_span("request", parent, SpanKind.SERVER) as span:
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier, set_span_in_context(span))
            token = TRACEPARENT.set(carrier.get("traceparent"))
            try:
                yield span
            finally:
                TRACEPARENT.reset(token)

    def graded(self, claim: Claim, result: Graded | Faulted, seconds: float) -> None:
        """A span for a job that was answered now and claimed `seconds` before."""
        from opentelemetry.trace import SpanKind, StatusCode

        try:
            traceparent = JobPayload.model_validate_json(claim.job.payload).traceparent or ""
        except ValidationError:
            traceparent = ""
        parent = self._propagator.extract({"traceparent": traceparent})
        ended_at = time.time_ns()
        span = self._tracer.start_span(
            f"grade {claim.job.grader}",
            parent,
            SpanKind.CONSUMER,
            start_time=ended_at - round(seconds * 1e9),
        )
        span.set_attribute("gradus.grader", claim.job.grader)
        span.set_attribute("gradus.job", claim.job.id)
        span.set_attribute("gradus.deliveries", claim.deliveries)
        span.set_attributes(_outcome(result))
        if isinstance(result, Faulted):
            span.set_status(StatusCode.ERROR, result.fault.kind.value)
        span.end(ended_at)

    def close(self) -> None:
        """Send what is left; takes as long as the collector does, at most its timeout."""
        self._provider.shutdown()


def _outcome(result: Graded | Faulted) -> dict[str, str | bool | float]:
    if isinstance(result, Faulted):
        return {"gradus.status": result.status, "gradus.fault": result.fault.kind.value}
    return {
        "gradus.status": result.status,
        "gradus.stage": result.stage.value,
        "gradus.passed": result.passed,
        "gradus.reward": result.reward,
        "gradus.rubric": result.rubric,
        "gradus.cpu_ms": result.cpu_ms,
    }


def spans(service: str) -> Spans | None:
    """What the environment asks for; None when it asks for nothing. `service`: its name, unless
    OTEL_SERVICE_NAME says.

    Raises Misuse for what this cannot do, and when OpenTelemetry is not installed.
    """
    asked = _exporter_asked_for(os.environ)
    if asked is None:
        return None
    try:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource

        exporter: SpanExporter
        if asked == "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            exporter = ConsoleSpanExporter()
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        return Spans(
            Resource.create({"service.name": service}).merge(OTELResourceDetector().detect()),
            exporter,
        )
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise Misuse(_PACKAGES_MISSING) from None


def _exporter_asked_for(environ: Mapping[str, str]) -> str | None:
    """`otlp` or `console`; None for none. By the standard variables, but that no endpoint means no
    traces."""
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    default = "otlp" if any(environ.get(name) for name in endpoints) else "none"
    asked = (environ.get("OTEL_TRACES_EXPORTER") or default).strip().lower()
    if asked == "none" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if asked not in ("otlp", "console"):
        raise Misuse(f"OTEL_TRACES_EXPORTER is otlp, console or none, not {asked[:64]!r}")
    protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environ[name] for name in protocols if environ.get(name)), "http/protobuf")
    if asked == "otlp" and protocol != "http/protobuf":
        raise Misuse(f"OTEL_EXPORTER_OTLP_PROTOCOL is http/protobuf here, not {protocol[:64]!r}")
    return asked
