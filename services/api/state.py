"""`Api`: what the routes of one app share, in `app.state.api`."""

from __future__ import annotations

from services.api.dispatch import GradingDispatcher
from services.api.grader_registry import GraderRegistry
from services.api.jobs import Jobs
from services.api.metrics import Metrics
from services.api.request_body import BytesInFlight
from services.api.settings import ApiSettings
from services.broker import Broker
from services.broker.signing import secrets_in
from services.tracing import spans


class Api:
    def __init__(self, broker: Broker, settings: ApiSettings) -> None:
        self.spans = spans("gradus-api")
        self.broker = broker
        self.settings = settings
        self.keys = settings.key_ring()
        self.metrics = Metrics()
        self.in_flight = BytesInFlight(settings.max_bytes_in_flight, settings.retry_after_s)
        self.registry = GraderRegistry(broker, settings.registry_ttl_s, settings.worker_grace_s)
        self.dispatcher = GradingDispatcher(
            broker, self.registry, self.metrics, secrets_in(settings.grader_secrets_file)
        )
        self.jobs = Jobs(broker, self.dispatcher, settings.job_ttl_s)
