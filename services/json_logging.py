"""Logging of services: one JSON object per line on standard error."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

LOGGERS = {
    "gradus": logging.INFO,
    "services": logging.INFO,
    "uvicorn": logging.WARNING,
    "opentelemetry": logging.WARNING,
}
"""Loggers that are shown, and their levels."""


class JsonLines(logging.Formatter):
    """One JSON object per line. Of an exception only its type and places: its message may quote a
    submission."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = describe_error(record.exc_info[1])
        return json.dumps(fields)


def log_json_lines() -> None:
    """Log `LOGGERS` to standard error as JSON lines, until the process ends."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in LOGGERS.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)


def describe_error(error: BaseException) -> str:
    """Return the type of the first cause and the places it came through; not its message, which may
    quote a submission."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__} at {places}"
