"""What services log: JSON lines that machines read and that quote nobody."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from services.json_logging import LOGGERS, log_json_lines


@contextmanager
def json_lines() -> Iterator[None]:
    """Logging as in the process of a service, and as before afterwards."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(one, one.handlers, one.propagate, one.level) for one in loggers]
    log_json_lines()
    try:
        yield
    finally:
        for logger, handlers, propagate, level in before:
            logger.handlers = handlers
            logger.propagate = propagate
            logger.setLevel(level)


def test_every_record_is_one_json_object_on_one_line_whatever_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with json_lines():
        logging.getLogger("gradus.worker").warning("submission %s", 'a"\n{"event": "forged"}\u2028')
        logging.getLogger("services.broker").info(
            "told", extra={"fields": {"grader": "ocaml", "ms": 1.5}}
        )
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["event"]) == (
        "warning",
        'submission a"\n{"event": "forged"}\u2028',
    )
    assert (second["event"], second["grader"], second["ms"]) == ("told", "ocaml", 1.5)


def test_of_an_exception_the_first_cause_and_its_places_are_told_and_not_its_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def breaks() -> None:
        try:
            raise KeyError("let secret = 42")
        except KeyError as error:
            raise RuntimeError("let secret = 42") from error

    with json_lines():
        try:
            breaks()
        except RuntimeError:
            logging.getLogger("gradus").exception("it broke")
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["error"].startswith("KeyError at breaks:")
    assert "secret" not in line
