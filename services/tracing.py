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
from services.broker.jobs import parse_payload

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

TRACEPARENT: ContextVar[str | None] = ContextVar("traceparent", default=None)
"""Trace context of the request under way, for the jobs that it queues."""
FIELD_ATTRIBUTES = {
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
}
"""Attributes for fields of the access log; the others begin with `gradus.`."""
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
    def record_request(self, headers: Mapping[str, str]) -> Iterator[dict[str, str | int]]:
        """A span for the request with these headers, and `TRACEPARENT` for its jobs, while the
        block runs, which adds the fields of the access log to what it is given."""
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        parent = self._propagator.extract(
            {name: headers[name] for name in self._propagator.fields if name in headers}
        )
        with self._tracer.start_span("request", parent, SpanKind.SERVER) as span:
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier, set_span_in_context(span))
            fields: dict[str, str | int] = {}
            token = TRACEPARENT.set(carrier.get("traceparent"))
            try:
                yield fields
            finally:
                TRACEPARENT.reset(token)
            span.update_name(f"{fields['method']} {fields['route']}")
            for name, value in fields.items():
                span.set_attribute(FIELD_ATTRIBUTES.get(name, f"gradus.{name}"), value)
            if int(fields["status"]) >= 500:
                span.set_status(StatusCode.ERROR)

    def record_grade(self, claim: Claim, result: Graded | Faulted, seconds: float) -> None:
        """A span for a job that was answered now and claimed `seconds` before."""
        from opentelemetry.trace import SpanKind, StatusCode

        try:
            traceparent = parse_payload(claim.job.payload).traceparent or ""
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
        span.set_attributes(_build_attributes(result))
        if isinstance(result, Faulted):
            span.set_status(StatusCode.ERROR, result.fault.kind.value)
        span.end(ended_at)

    def close(self) -> None:
        """Send what is left; takes as long as the collector does, at most its timeout."""
        self._provider.shutdown()


def _build_attributes(result: Graded | Faulted) -> dict[str, str | bool | float]:
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
    """Return what the environment asks for; None when it asks for nothing. `service`: its name,
    unless OTEL_SERVICE_NAME says.

    Raises Misuse for what this cannot do, and when OpenTelemetry is not installed.
    """
    if not is_tracing_enabled(os.environ):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource

        resource = Resource.create({"service.name": service}).merge(OTELResourceDetector().detect())
        return Spans(resource, OTLPSpanExporter())
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise Misuse(_PACKAGES_MISSING) from None


def is_tracing_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether the standard variables ask for traces; without an endpoint none are made.

    Raises Misuse for an exporter or a protocol that is not supported.
    """
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    default = "otlp" if any(environ.get(name) for name in endpoints) else "none"
    exporter = environ.get("OTEL_TRACES_EXPORTER") or default
    if exporter == "none" or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if exporter != "otlp":
        raise Misuse(f"OTEL_TRACES_EXPORTER is otlp or none, not {exporter[:64]!r}")
    protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    for name in protocols:
        if environ.get(name, "http/protobuf") != "http/protobuf":
            raise Misuse(f"{name} is http/protobuf here, not {environ[name][:64]!r}")
    return True
