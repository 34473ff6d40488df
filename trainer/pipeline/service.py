"""The grading service that a pipeline starts for itself: `gradus serve` on a free port while the pipeline runs."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gradus.errors import QueueFault
from trainer.pipeline.subprocesses import LOOK_EVERY_S, Child, Signals

READY_S = 300.0
"""Graders build and prove themselves first, the first time on a machine."""
_SERVING = re.compile(r"^gradus: serving on (http://\S+)$", re.MULTILINE)
GRADUS = (sys.executable, "-m", "gradus")


class Embedded:
    """A service of the pipeline's own; leaving the block ends it."""

    def __init__(self, log: Path, holding: int, graders: Sequence[str], slots: int | None) -> None:
        self._log = log
        self._holding = holding
        self._options = ["--graders", ",".join(graders)] if graders else []
        self._options += ["--slots", str(slots)] if slots is not None else []
        self._child: Child | None = None
        self._url = ""

    def __enter__(self) -> Embedded:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._child is not None:
            self._child.end()

    def url(self, signals: Signals, say: Callable[[str], None]) -> str:
        """Where it listens; it is started when this is first asked, and anew when it has died. Raises a Fault."""
        if self._child is not None and self._child.process.poll() is None:
            return self._url
        say("starting the grading service")
        command = [*GRADUS, "serve", "--port", "0", *self._options]
        child = self._child = Child(command, self._log, self._holding, without_settings(os.environ))
        give_up_at = time.monotonic() + READY_S
        while (found := _SERVING.search(child.said())) is None:
            signals.raise_if_made()
            trouble = ""
            if child.process.poll() is not None:
                trouble = f"ended with status {child.process.returncode}"
            elif time.monotonic() > give_up_at:
                trouble = f"was not ready within {READY_S:.0f} s"
            if trouble:
                end = f"the end of {child.log}:\n{child.tail(5)}\n`gradus doctor` says what is missing"
                raise QueueFault(f"the grading service {trouble}; {end}")
            time.sleep(LOOK_EVERY_S)
        self._url = found[1]
        return self._url


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without settings for other services, which would make this one ask for keys, say."""
    return {
        name: value
        for name, value in environment.items()
        if name == "GRADUS_CACHE_DIR" or not name.startswith("GRADUS_")
    }
