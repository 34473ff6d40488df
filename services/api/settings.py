"""Settings of an API process, from its environment. Read once."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gradus.contract import GraderName
from services.api.api_keys import ApiKey, read_keys

PREFIX = "GRADUS_API_"
OF_CLIENTS = frozenset({"GRADUS_API_KEY"})
"""Variables of clients, which may be set in the same environment. They protect no service:
`GRADUS_API_KEYS_FILE` does."""

Port = Annotated[int, Field(ge=0, le=65535)]


def split_at_commas(value: Any) -> Any:
    """Return the parts of a text; any other value as it is."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


def split_pairs(value: Any) -> Any:
    """Return each `NAME=VALUE` of a text or a list as a pair."""
    parts = split_at_commas(value)
    return [part.split("=", 1) if isinstance(part, str) else part for part in parts]


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_at_commas)]
Files = Annotated[tuple[tuple[GraderName, Path], ...], NoDecode, BeforeValidator(split_pairs)]
Ports = Annotated[tuple[tuple[GraderName, Port], ...], NoDecode, BeforeValidator(split_pairs)]


class ApiSettings(BaseSettings):
    """Every field can be set as `GRADUS_API_<FIELD>`; a name with that prefix which is no field is
    refused."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    keys: str = ""
    """Keys as lines of `services.api.api_keys`, or with semicolons between."""
    keys_file: Path | None = None
    """A file with such lines, read again when it changes. Without a key here or in `keys` none is
    required."""
    allowed_hosts: Names = ()
    """Names that may stand in the header `Host`, without port, with commas between. Empty: on a
    loopback address without keys only names of this machine, else any."""
    adapters: Names = ()
    """Protocols of other trainers to serve (`services.api.adapters.ADAPTERS`), with commas
    between."""
    tasks: Files = ()
    """Files of tasks that clients of adapters name by id: `story=train.jsonl`, with commas
    between."""
    nemo_gym_ports: Ports = ()
    """Ports that serve a grader's `nemo_gym` adapter at their root: `story=8101`, with commas
    between."""
    nemo_gym_faults: Literal["row", "status"] = "row"
    """What a fault is on these ports: a failure row, or status 503 for training loops that do not
    read `mask_sample`."""
    grader_secrets_file: Path | None = None
    """A file of `services.broker.signing`. With it, results without the signature of their grader
    are faults."""
    allow_anonymous: bool = False
    """Serve without keys on an address that others can reach: only inside a network that is closed
    already."""
    docs: bool = True
    """Serve `/docs`, a page of the API that loads nothing from elsewhere."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 64 * 2**20
    max_bytes_in_flight: Annotated[int, Field(gt=0)] = 256 * 2**20
    """Bytes of all requests that are read or unanswered, and 56 for each token of their JSON; past
    it 429. Each API key has a quarter of it whatever others hold, up to twice the limit in all. The
    process needs about twice as much."""
    body_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds in which the body of a request must arrive."""
    header_timeout_s: Annotated[float, Field(gt=0)] = 10.0
    """Seconds in which the header section of a request must arrive."""
    keep_alive_s: Annotated[int, Field(ge=1)] = 75
    """Seconds that a connection may idle between requests."""
    send_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which a client that acknowledges nothing of its response is disconnected."""
    heartbeat_s: Annotated[float, Field(gt=0)] = 5.0
    """Seconds between keep-alive lines on an idle NDJSON stream. Clients use them to detect a dead
    server."""
    registry_ttl_s: Annotated[float, Field(ge=0)] = 1.0
    """Seconds for which the list of live graders is cached."""
    worker_grace_s: Annotated[float, Field(ge=0)] = 12.0
    """Seconds without a live worker of a grader after which its submissions become faults, before
    the deadline.

    It exceeds the time that a worker may need to register again after a failover: a call that hangs
    for 5 s, and a heartbeat's 5 s.
    """
    required_graders: Names = ()
    """Graders without a live worker of which this service is not ready, with commas between."""
    shutdown_grace_s: Annotated[int, Field(ge=1)] = 30
    """Seconds in which requests under way may finish after SIGTERM."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, values: Any) -> Any:
        # pydantic-settings ignores a misspelt variable, even with `extra="forbid"`.
        variables = {f"{PREFIX}{name.upper()}" for name in cls.model_fields}
        for name in os.environ:
            if name.upper().startswith(PREFIX) and name.upper() not in variables | OF_CLIENTS:
                close = difflib.get_close_matches(name.upper(), sorted(variables), n=1)
                hint = (
                    f"; did you mean {close[0]}?"
                    if close
                    else f"; there are: {', '.join(sorted(variables))}"
                )
                raise ValueError(f"the environment variable {name} is no setting{hint}")
        return values

    def read_keys(self) -> list[ApiKey]:
        """Return the keys that these settings name. Raises Misuse for one that cannot be used."""
        return read_keys(self.keys, self.keys_file)
