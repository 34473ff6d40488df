"""`Api`: the objects that all routes of an app share, in `app.state.api`."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import HTTPConnection

from services.api.api_keys import BusyConnections, Quotas, WatchedKeys
from services.api.dispatch import GradingDispatcher
from services.api.grader_registry import GraderRegistry
from services.api.jobs import Jobs
from services.api.metrics import Metrics
from services.api.parse import BytesInFlight
from services.api.settings import ApiSettings
from services.broker import Broker
from services.broker.signing import read_secrets
from services.tracing import spans


class Api:
    def __init__(self, broker: Broker, settings: ApiSettings) -> None:
        self.spans = spans("gradus-api")
        self.broker = broker
        self.settings = settings
        self.keys = WatchedKeys(settings.read_keys, settings.keys_file)
        self.quotas = Quotas()
        self.busy_connections = BusyConnections()
        # Returns whether a name in `Host` is accepted; None: every name is.
        self.allowed_hosts: Callable[[str], bool] | None = None
        if settings.allowed_hosts:
            self.allowed_hosts = frozenset(map(str.lower, settings.allowed_hosts)).__contains__
        self.metrics = Metrics()
        self.in_flight = BytesInFlight(settings.max_bytes_in_flight)
        self.registry = GraderRegistry(broker, settings.registry_ttl_s, settings.worker_grace_s)
        self.dispatcher = GradingDispatcher(
            broker, self.registry, self.metrics, read_secrets(settings.grader_secrets_file)
        )
        self.jobs = Jobs(broker, self.dispatcher)


def get_api(connection: HTTPConnection) -> Api:
    api: Api = connection.app.state.api
    return api
