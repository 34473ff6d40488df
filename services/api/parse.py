"""Second step of a request: its body, as strict JSON within limits of size and time, and the
headers of its fair share."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jiter
from fastapi import Request
from pydantic import BaseModel, ValidationError

from gradus.errors import Misuse, TooLarge
from gradus.json_tokens import MAX_TOKENS, MAX_VALUE_TOKENS, count_tokens
from services.api.body_process import Body, run_in_process
from services.api.json_cursor import JsonCursor
from services.api.problems import Refused, make_field_refusal, make_model_refusal
from services.api.settings import ApiSettings
from services.broker import DEFAULT_FAIR_SHARE, FairShare, Priority
from services.broker.jobs import RETRY_AFTER_S

RUN_NAME = r"[A-Za-z0-9][A-Za-z0-9_.:/@+\-]{0,63}"
PRIORITIES = [priority.value for priority in Priority]

# Smallest body that is parsed, validated and hashed in a process of its own.
LARGE_BYTES = 256 * 1024
# Bytes that count as in flight for each token of a body: what an object in memory takes, measured
# over lists, objects and texts.
TOKEN_BYTES = 56
# A key may have a quarter of the bytes in flight whatever others have: one largest body.
RESERVED_KEY_PART = 4
TWICE = "an object has the same name twice"
# Names that an object of a request may have: more than it uses, few enough to list as mistakes.
MAX_FIELDS = 64
T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)


class BytesInFlight:
    """Bytes of the requests that this process reads or has not answered yet, in all and by API key.

    They are at most `limit`. A key that holds little has a part of its own beyond that, up to twice
    the limit in all, so that a key which holds all of it shuts out no other.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._held_by_key: Counter[str] = Counter()

    def take(self, key: str, n_bytes: int) -> None:
        """Raise Refused (429) where the bytes would pass a bound, which its message names."""
        held_by_key = self._held_by_key[key] + n_bytes
        has_part = held_by_key <= self.limit // RESERVED_KEY_PART
        bound = None
        if self.held + n_bytes > (2 if has_part else 1) * self.limit:
            bound = f"requests of more than {self.limit} bytes are in flight"
        if held_by_key > self.limit:
            bound = f"requests of this API key of more than {self.limit} bytes are in flight"
        if bound is not None:
            message = f"{bound}; try again later"
            raise Refused(429, message, retry_after_s=RETRY_AFTER_S, bound="bytes")
        self.held += n_bytes
        self._held_by_key[key] = held_by_key

    def give_back(self, key: str, n_bytes: int) -> None:
        self.held -= n_bytes
        self._held_by_key[key] -= n_bytes
        if not self._held_by_key[key]:
            del self._held_by_key[key]


class Reservation:
    """Bytes of one request, which count as in flight until this object is deleted, with the batch
    that was made of the request."""

    def __init__(self, in_flight: BytesInFlight, key: str) -> None:
        """`key`: name of the API key."""
        self.n_bytes = 0
        self.key = key
        self._in_flight = in_flight

    def grow(self, n_bytes: int) -> None:
        """Raise Refused (429) when the bytes in flight would pass their limit."""
        self._in_flight.take(self.key, n_bytes)
        self.n_bytes += n_bytes

    def __del__(self) -> None:
        self._in_flight.give_back(self.key, self.n_bytes)


async def parse_body(
    request: Request,
    settings: ApiSettings,
    in_flight: BytesInFlight,
    parse: Callable[[bytes], T],
) -> tuple[T, Reservation]:
    """Return what `parse` makes of the body of a JSON request, and its bytes in flight.

    Raises a Misuse: 400, 408, 413, 415, 429, and those of `parse`.
    """
    reservation = Reservation(in_flight, request.state.key.name)
    body = await _read_body(request, settings, reservation)
    return await parse_counted(body, reservation, parse), reservation


async def parse_counted(body: Body, reservation: Reservation, parse: Callable[[bytes], T]) -> T:
    """Return what `parse` makes of a JSON text, when its tokens fit their limit and the bytes in
    flight.

    Raises a Misuse: 400, 413, 429, and those of `parse`.
    """
    if body.n_bytes < LARGE_BYTES:
        data = body.join()
        reservation.grow(_count_tokens(data, MAX_TOKENS) * TOKEN_BYTES)
        return await run_outside_loop(reservation, parse, data)
    parsed: tuple[T, int] = await run_in_process(
        reservation.key, body.n_bytes, _parse_and_count, parse, MAX_TOKENS, body=body
    )
    value, n_tokens = parsed
    reservation.grow(n_tokens * TOKEN_BYTES)
    return value


def _parse_and_count(data: bytes, parse: Callable[[bytes], T], limit: int) -> tuple[T, int]:
    n_tokens = _count_tokens(data, limit)
    return parse(data), n_tokens


def _count_tokens(data: bytes, limit: int) -> int:
    try:
        return count_tokens(data, limit)
    except ValueError as error:
        raise make_field_refusal(400, [((), f"the JSON cannot be read: {error}")]) from None


async def _read_body(request: Request, settings: ApiSettings, reservation: Reservation) -> Body:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refused(415, "send the request as `Content-Type: application/json`")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(415, "send the request without Content-Encoding")
    limit = settings.max_body_bytes
    content_length = request.headers.get("content-length", "")
    too_large = TooLarge(
        f"the body is larger than {limit} bytes; send the submissions in several requests"
    )
    if content_length.isdecimal() and int(content_length) > limit:
        raise too_large
    body = Body()
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            # Counted while it arrives: a chunked body has no Content-Length, and one that is sent
            # may be wrong.
            async for chunk in request.stream():
                body.append(chunk)
                if body.n_bytes > limit:
                    raise too_large
                reservation.grow(len(chunk))
    except TimeoutError:
        raise Refused(
            408, f"the body had not arrived after {settings.body_timeout_s:g} s"
        ) from None
    return body


async def run_outside_loop(reservation: Reservation, work: Callable[..., T], *args: Any) -> T:
    """Return `work(*args)`. Work on a large body is done in another process, and what it changes of
    its arguments is lost. `reservation`: of the body's bytes.

    Raises what `work` raises, and TooLarge where a large body takes too much time or memory.
    """
    if reservation.n_bytes < LARGE_BYTES:
        return work(*args)
    return await run_in_process(reservation.key, reservation.n_bytes, work, *args)


def parse_model(model: type[Model], data: Any) -> Model:
    """Return a model read from JSON, if `data` is bytes, or from its value. Raises a Misuse: 400,
    413, 422."""
    document = parse_json(data) if isinstance(data, bytes) else data
    refuse_many_fields(document)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise make_model_refusal(error) from None


def refuse_many_fields(
    value: Any, path: tuple[str | int, ...] = (), limit: int = MAX_FIELDS
) -> None:
    """Raise Refused (422) for an object with so many names that nearly all of them are unknown:
    each would be a mistake of its own. `value`: any value, or the names of an object."""
    if isinstance(value, dict | set) and len(value) > limit:
        message = f"Should have at most {limit} fields"
        raise make_field_refusal(422, [(path, message)])


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text; NaN and Infinity are read as numbers.

    Raises Refused (400) for duplicate names in an object, lone surrogates and what is no JSON.
    """
    try:
        return jiter.from_json(data, allow_inf_nan=True, catch_duplicate_keys=True)
    except ValueError as error:
        message = f"Invalid JSON: {error}"
        if "duplicate key" in str(error):
            message = TWICE
        raise make_field_refusal(400, [((), message)]) from None


def refuse_nan(data: bytes) -> None:
    """Raise Refused (400) for NaN and Infinity: parsers read them differently."""
    if b"NaN" in data or b"Infinity" in data:
        try:
            jiter.from_json(data, allow_inf_nan=False)
        except ValueError:
            message = "NaN and Infinity are no JSON numbers"
            raise make_field_refusal(400, [((), message)]) from None


def iter_fields(cursor: JsonCursor, parse: Callable[[bytes], Any], limit: int) -> Iterator[str]:
    """Yield the name of each member of the object that a text is, with the cursor at its value,
    which must be read before the next. `parse`: reader of names.

    Raises Refused: 400 for a name twice, 422 for more than `limit`. Raises ValueError where the
    text is no JSON.
    """
    names: set[str] = set()
    for text in cursor.iter_members():
        name = parse(text)
        if name in names:
            raise make_field_refusal(400, [((), TWICE)])
        names.add(name)
        refuse_many_fields(names, limit=limit)
        yield name
    cursor.close()


def bound_value(text: bytes) -> None:
    """Raise TooLarge for a value of more than `MAX_VALUE_TOKENS`."""
    if len(text) > MAX_VALUE_TOKENS:
        count_tokens(text, MAX_VALUE_TOKENS)


def parse_fair_share(headers: Mapping[str, str], owner: str = DEFAULT_FAIR_SHARE.run) -> FairShare:
    """Return the fair share that `Gradus-Run` and `Gradus-Priority` name. `owner`: the name of the
    API key.

    The same run under two keys is two runs. Raises Misuse for an invalid value.
    """
    run = headers.get("gradus-run")
    if run is not None and not re.fullmatch(RUN_NAME, run):
        raise Misuse(
            "header `Gradus-Run`: a name of 1 to 64 letters, digits and `_.:/@+-`, starting with a"
            " letter or digit"
        )
    priority = headers.get("gradus-priority", DEFAULT_FAIR_SHARE.priority)
    if priority not in PRIORITIES:
        raise Misuse("header `Gradus-Priority`: `evaluation` or `training`")
    return FairShare(owner if run is None else f"{owner} {run}", Priority(priority))
