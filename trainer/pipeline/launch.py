"""Runs the commands of one machine that `trainer.config.launch` plans."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from gradus.console import log_line
from trainer.config.launch import LaunchCommand
from trainer.pipeline.subprocesses import LOOK_EVERY_S, Child, Signals

SERVER_ENDED = 1
"""Exit status when the server ended before training did."""


def run_commands(commands: Sequence[LaunchCommand], log: Path) -> int:
    """Run training, the last command, on this terminal, and a server before it beside it, with its
    output in `log`.

    Training waits for its server by itself. The first signal has it save and end, as the end of the
    server does; a second one kills it. Returns its exit status, or SERVER_ENDED.
    """
    *servers, last = commands
    signals = Signals()
    with ExitStack() as stack:
        stack.enter_context(signals.handle_signals())
        children = []
        for server in servers:
            variables = {**os.environ, **server.variables}
            child = Child(server.words, log, environment=variables)
            stack.callback(child.end)
            children.append(child)
        variables = {**os.environ, **last.variables}
        training = subprocess.Popen(last.words, env=variables, start_new_session=True)
        stack.callback(training.wait)
        stack.callback(training.kill)
        is_ending = False
        while training.poll() is None:
            has_server_ended = any(child.process.poll() is not None for child in children)
            if not is_ending and (has_server_ended or signals.signal_number is not None):
                training.send_signal(signal.SIGTERM)
                is_ending = True
            if signals.kills:
                training.kill()
            with suppress(subprocess.TimeoutExpired):
                training.wait(LOOK_EVERY_S)
        for child in children:
            if child.process.poll() is not None:
                log_line(f"the server ended; the end of {log}:\n{child.tail(5)}")
                return training.returncode or SERVER_ENDED
        signals.raise_if_made()
        return training.returncode
