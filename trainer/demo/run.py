"""`make demo`: Redis, the service and workers started on this machine, a tiny model trained and
measured, a report. `make demo-vllm`: the same with a vLLM server, which writes the completions of
the training.

Everything is real and the same as in a large run: the queue, the sandboxed graders over HTTP, the
trainer, its config. Whatever it starts it stops again, also after Ctrl-C or a failure; an earlier
run is moved aside. It installs nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from shutil import rmtree, which

from rich.console import Console
from rich.markup import escape

from gradus.client import RewardClient
from gradus.errors import Misuse, QueueFault
from gradus.resources import configs
from trainer.evaluate.comparison import compare
from trainer.evaluate.report import write_report
from trainer.evaluate.results import read_evaluation
from trainer.pipeline.subprocesses import GRADUS, Child, remove_settings
from trainer.runs.folder import RunFolder, find_free_name, read_lines
from trainer.runs.signals import defer_signals, install_handler

GRADER = "ocaml"
NEEDED = {
    "redis-server": "apt-get install redis-server",
    "bwrap": "apt-get install bubblewrap",
    "ocamlfind": "apt-get install ocaml-nox ocaml-findlib",
}
REDIS_READY_S, WORKERS_READY_S = 10.0, 90.0
TAIL_LINES = 15
EXIT_DONE, EXIT_FAILED, EXIT_FAULTED = 0, 1, 3
SIGNALLED = 128
"""Exit statuses above it are signals, as in shells."""
CONFIG, VLLM_CONFIG = "demo_ocaml.yaml", "demo_ocaml_vllm.yaml"
"""They differ in who generates and in nothing that is learnt from."""
VLLM_WHEN_THERE = (
    'until [ -d "$1" ]; do sleep 0.2; done; exec "$0" vllm "$@" --device cpu --max-model-len 256'
    " --max-num-seqs 128"
)
"""Shell command of a vLLM server that starts once the warm start has written its model."""
QUICK = (
    "--max_steps",
    "12",
    "--warm_start.limit",
    "4000",
    "--evaluation.samples",
    "2",
    "--evaluation.limit",
    "24",
)
"""Overrides for a run that only shows that everything works; its figures mean little."""


class DemoFailed(Exception):
    """Something the demo needs did not come up; the message says what, shows its log and how to go
    on."""


def main(run_dir: Path = Path("runs/demo"), quick: bool = False, vllm: Path | None = None) -> int:
    """Run the whole demo in `run_dir`. Returns 0, 3 when anything was faulted, or what made it
    stop.

    `vllm` is the `gradus` of an environment that has vLLM; None: the trainer's own process
    generates.
    """
    console = Console(highlight=False, soft_wrap=True)
    # Before torch is loaded: beside the workers, and for a model this small, one thread is fastest.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    started = time.monotonic()
    if vllm is not None and not vllm.exists():
        console.print(f"There is no {vllm}. `make vllm` installs it.")
        return EXIT_FAILED
    try:
        with install_handler(
            signal.default_int_handler, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ):
            if missing := [
                f"{tool} ({command})" for tool, command in NEEDED.items() if not which(tool)
            ]:
                raise DemoFailed(
                    f"These programs are missing: {', '.join(missing)}. `make setup` installs all"
                    " of them."
                )
            aside = set_aside(run_dir)
            logs = run_dir / "logs"
            logs.mkdir(parents=True)
            console.print(
                "[bold]Gradus demo:[/] a tiny language model learns OCaml from a compiler and"
                " tests."
            )
            if aside is not None:
                console.print(f"The run that was in {run_dir} is now in {aside}.")
            with Services(logs) as services:
                cores = len(os.sched_getaffinity(0))
                console.print(f"Starting Redis, the service and {cores} sandboxed workers ...")
                url = services.start(cores)
                console.print(f"Grading at {url}; logs in {logs}.")
                _train(run_dir, quick, vllm, services, url)
                return _report_outcome(run_dir, console, started)
    except DemoFailed as failure:
        console.print(f"\n[bold red]The demo stopped.[/] {escape(str(failure))}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        console.print("\nStopped. Everything that the demo had started is stopped too.")
        return SIGNALLED + signal.SIGINT


def _train(run_dir: Path, quick: bool, vllm: Path | None, services: Services, url: str) -> None:
    config = CONFIG
    overrides = ["--output_dir", str(run_dir), "--reward.urls", url]
    if quick:
        overrides += QUICK
    if vllm is not None:
        config = VLLM_CONFIG
        overrides += ["--generation.url", services.start_vllm(vllm, run_dir / "warm_start")]
    # a signal during this import, which takes seconds, ends the demo right after it
    with defer_signals():
        from transformers.utils import logging

        from trainer.train import main as train
    logging.disable_progress_bar()
    try:
        status = train(configs() / "train" / config, overrides)
    except Misuse as misuse:
        raise DemoFailed(f"The training refused its configuration: {misuse}") from None
    if status > SIGNALLED:
        raise KeyboardInterrupt
    if status != EXIT_DONE:
        for service in services.running:
            service.check()
        log = run_dir / "training.log"
        raise DemoFailed(f"The training ended with status {status}; its log is {log}.")


def _report_outcome(run_dir: Path, console: Console, started: float) -> int:
    report = write_report(run_dir, run_dir / "report.html")
    files = RunFolder(run_dir)
    before = read_evaluation(files.evaluations / "before.json")
    after = read_evaluation(files.evaluations / "after.json")
    comparison = compare(before, after, anyway=True)
    rates = comparison.pass_rate
    verb = "did not change measurably:"
    if rates.change.low > 0:
        verb = "rose"
    elif rates.change.high < 0:
        verb = "fell"
    went = f"{verb} from {rates.before:.1%} to {rates.after:.1%}"
    console.print(f"\n[bold]The pass rate on {comparison.tasks} held-out tasks {went}.[/]")
    trained = [line.get("reward") for line in read_lines(files.completions)]
    faulted = trained.count(None) + before.faulted + after.faulted
    measured = sum(
        measurement.graded for side in (before, after) for measurement in side.measurements
    )
    graded = len(trained) - trained.count(None) + measured
    steps = sum("learning_rate" in line for line in read_lines(files.metrics))
    faults = f"[bold red]{faulted:,} faults[/]" if faulted else "no faults"
    took = timedelta(seconds=round(time.monotonic() - started))
    console.print(f"{graded:,} submissions graded, {faults}; {steps} GRPO steps; {took} in all.")
    console.print(f"The report: {report.resolve()}")
    return EXIT_FAULTED if faulted else EXIT_DONE


def set_aside(run_dir: Path) -> Path | None:
    """Move an earlier run to the next free `run_dir.N`; where to, or None when there was none."""
    if not run_dir.exists() or (run_dir.is_dir() and not any(run_dir.iterdir())):
        return None
    return run_dir.rename(find_free_name(run_dir.with_name(f"{run_dir.name}.")))


# ---------------------------------------------------------------------------------------- services


class Service(Child):
    """One program that the demo started, in a process group of its own."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        super().__init__(command, log, environment=remove_settings(os.environ))
        self.name = name

    def check(self) -> None:
        """Raise DemoFailed with the end of its log when it has died."""
        status = self.process.poll()
        if status is not None:
            raise DemoFailed(
                f"{self.name} ended with status {status}. `gradus doctor` says what is missing.\n"
                f"{self.render_log_tail()}"
            )

    def render_log_tail(self) -> str:
        return f"The end of {self.log}:\n{self.tail(TAIL_LINES) or '  (it is empty)'}"


@dataclass(slots=True)
class Services:
    """Redis, the API and the workers; leaving the `with` block stops them all, the last started
    first."""

    logs: Path
    running: list[Service] = field(default_factory=list)
    folder: Path | None = None

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *exc_info: object) -> None:
        while self.running:
            self.running.pop().end()
        if self.folder is not None:
            rmtree(self.folder, ignore_errors=True)

    def start(self, workers: int) -> str:
        """Start everything and wait until it is ready; returns the service's address. Raises
        DemoFailed."""
        self.folder = Path(tempfile.mkdtemp(prefix="gradus-demo-"))
        redis_port = find_free_port()
        port = find_free_port()
        redis = f"redis://127.0.0.1:{redis_port}/0"
        url = f"http://127.0.0.1:{port}"
        settings = ["--port", str(redis_port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        self._launch("redis", ["redis-server", *settings, "--save", "", "--appendonly", "no"])
        self._wait("Redis", REDIS_READY_S, lambda: _can_connect(redis_port))
        self._launch("serve", [*GRADUS, "serve", "--redis", redis, "--port", str(port)])
        command = [*GRADUS, "worker", GRADER, "--redis", redis, "--slots", "1"]
        for number in range(1, workers + 1):
            self._launch(f"worker-{number}", command)
        self._wait("the workers", WORKERS_READY_S, lambda: _count_workers(url) >= workers)
        return url

    def start_vllm(self, gradus: Path, model: Path) -> str:
        """Start a vLLM server as soon as there is a model in that folder; returns the address that
        it will have."""
        port = find_free_port()
        command = ["sh", "-c", VLLM_WHEN_THERE, str(gradus), str(model), "--port", str(port)]
        self._launch("vllm", command)
        return f"http://127.0.0.1:{port}"

    def _launch(self, name: str, command: Sequence[str]) -> None:
        self.running.append(Service(name, command, self.logs / f"{name}.log"))

    def _wait(self, name: str, timeout_s: float, is_ready: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + timeout_s
        while not is_ready():
            for service in self.running:
                service.check()
            if time.monotonic() > give_up_at:
                tails = "\n".join(service.render_log_tail() for service in self.running)
                raise DemoFailed(f"{name} did not get ready within {timeout_s:.0f} s.\n{tails}")
            time.sleep(0.1)


def find_free_port() -> int:
    """Return a port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _can_connect(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _count_workers(url: str) -> int:
    try:
        graders = asyncio.run(RewardClient(url).graders())
    except QueueFault:
        return 0
    return sum(info.workers for info in graders if info.name == GRADER)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m trainer.demo.run", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--run-dir", type=Path, default=Path("runs/demo"))
    parser.add_argument(
        "--vllm", type=Path, help="the gradus of an environment with vLLM, to generate with that"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a dozen steps, only to see that everything works"
    )
    chosen = parser.parse_args()
    sys.exit(main(chosen.run_dir, chosen.quick, chosen.vllm))
