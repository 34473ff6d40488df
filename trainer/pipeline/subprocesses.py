"""Programs that a pipeline starts: each in a session of its own, told to end when the pipeline
does, however that ends.

A signal to the pipeline becomes one SIGTERM to the program, so that a training saves; a second one
kills it.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gradus.errors import QueueFault
from trainer.runs.signals import StopWish

LOOK_EVERY_S = 0.25
STOP_S = 10.0
"""What a service gets to end, until it is killed."""
READY_S = 300.0
"""Graders build and prove themselves first, the first time on a machine."""
TAIL_BYTES = 65536
COLUMNS = "120"
"""Width of tables in a log."""
GRADUS = (sys.executable, "-m", "gradus")
_SERVING = re.compile(r"^gradus: serving on (http://\S+)$", re.MULTILINE)
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

_libc = ctypes.CDLL(None)
"""Loaded once, before there is a child that would have to."""


class Signals(StopWish):
    """The signals that ask the pipeline to end."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    SAYS = "stopping; what runs may still save. Once more kills it"
    kills = False
    """What runs is killed, without a chance to save."""

    def stop_at_once(self) -> None:
        self.kills = True


class Child:
    """One program that was started, and its log."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        holding: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`holding` is a descriptor that the program keeps open for as long as it lives."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        with log.open("ab") as output:
            self.began_at = output.tell()
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"COLUMNS": COLUMNS, **(os.environ if environment is None else environment)},
                pass_fds=() if holding is None else (holding,),
                start_new_session=True,
                preexec_fn=_stop_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )

    def wait(self, signals: Signals) -> int:
        """Return its exit status. Raises StopRequested after a signal."""
        passed_on = False
        try:
            while self.process.poll() is None:
                if signals.signal_number is not None and not passed_on:
                    self._send(signal.SIGTERM)
                    passed_on = True
                if signals.kills:
                    break
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(LOOK_EVERY_S)
        finally:
            self.kill()
        if self.process.returncode != 0:
            signals.raise_if_made()
        return self.process.returncode

    def end(self) -> None:
        """Ask it to end, then make it; safe to call twice."""
        self._send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """End it and all that is left of what it had started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _send(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def read_output(self) -> str:
        """Return what this start of the program has written, its end if that is long."""
        with self.log.open("rb") as handle:
            end = handle.seek(0, os.SEEK_END)
            handle.seek(max(self.began_at, end - TAIL_BYTES))
            return handle.read().decode("utf-8", errors="replace")

    def tail(self, lines: int) -> str:
        """Return the last lines of that, indented for a message."""
        return "\n".join(f"  {line}" for line in self.read_output().splitlines()[-lines:])


def _stop_with_parent() -> None:
    """In the child: be told to end when the pipeline is killed without a chance to do so."""
    _libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


class Embedded:
    """A service of the pipeline's own."""

    def __init__(self, log: Path, holding: int, graders: Sequence[str]) -> None:
        self._log = log
        self._holding = holding
        self._options = ["--graders", ",".join(graders)] if graders else []
        self._child: Child | None = None
        self._url = ""

    def close(self) -> None:
        if self._child is not None:
            self._child.end()

    def get_url(self, signals: Signals, log: Callable[[str], None]) -> str:
        """Return where it listens; it is started when this is first asked, and anew when it has
        died. Raises a Fault."""
        if self._child is not None and self._child.process.poll() is None:
            return self._url
        log("starting the grading service")
        command = [*GRADUS, "serve", "--port", "0", *self._options]
        child = self._child = Child(command, self._log, self._holding, remove_settings(os.environ))
        give_up_at = time.monotonic() + READY_S
        while (match := _SERVING.search(child.read_output())) is None:
            signals.raise_if_made()
            if child.process.poll() is not None or time.monotonic() > give_up_at:
                raise QueueFault(
                    f"the grading service did not come up; the end of {child.log}:\n"
                    f"{child.tail(5)}\n`gradus doctor` says what is missing"
                )
            time.sleep(LOOK_EVERY_S)
        self._url = match[1]
        return self._url


def remove_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without settings for other services, which would make this one ask for
    keys, say."""
    inherited = {}
    for name, value in environment.items():
        if name == "GRADUS_CACHE_DIR" or not name.startswith("GRADUS_"):
            inherited[name] = value
    return inherited
