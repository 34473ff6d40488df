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
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gradus.client import RewardClient
from gradus.errors import Misuse, QueueFault
from gradus.resources import configs
from trainer.evaluate.comparison import MODES, Comparison, compare
from trainer.evaluate.report import write_report
from trainer.evaluate.results import Evaluation, read_evaluation
from trainer.pipeline.console import duration
from trainer.pipeline.subprocesses import GRADUS, Child, without_settings
from trainer.runs.folder import RunFolder, free_name, read_lines
from trainer.runs.signals import handled_by, held_back

GRADER = "ocaml"
NEEDED = {
    "redis-server": "apt-get install redis-server",
    "bwrap": "apt-get install bubblewrap",
    "ocamlfind": "apt-get install ocaml-nox ocaml-findlib",
}
REDIS_READY_S, SERVICE_READY_S, WORKERS_READY_S = 10.0, 30.0, 90.0
TAIL_LINES = 15
EXIT_DONE, EXIT_FAILED, EXIT_FAULTED = 0, 1, 3
SIGNALLED = 128
"""Exit statuses above it are signals, as in shells."""
CONFIG, VLLM_CONFIG = "demo_ocaml.yaml", "demo_ocaml_vllm.yaml"
"""They differ in who generates and in nothing that is learnt from."""
VLLM_OPTIONS = ("--device", "cpu", "--max-model-len", "256", "--max-num-seqs", "128")
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
    try:
        with terminable():
            return _demo(run_dir, quick, vllm, console, started)
    except DemoFailed as failure:
        console.print(f"\n[bold red]The demo stopped.[/] {escape(str(failure))}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        console.print("\nStopped. Everything that the demo had started is stopped too.")
        return SIGNALLED + signal.SIGINT


def _demo(run_dir: Path, quick: bool, vllm: Path | None, console: Console, started: float) -> int:
    if vllm is not None and not vllm.exists():
        raise DemoFailed(f"There is no {vllm}. `make vllm` installs it.")
    refuse_without_tools()
    aside = set_aside(run_dir)
    (run_dir / "logs").mkdir(parents=True)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    console.print(
        "[bold]Gradus demo:[/] a tiny language model learns OCaml from a real compiler and real"
        " tests."
    )
    if quick:
        console.print(
            "Quick: a dozen steps show that everything works, and the figures mean little."
        )
    if aside is not None:
        console.print(f"The run that was in {run_dir} is now in {aside}.")
    with Services(run_dir / "logs") as services:
        console.print(f"1. Starting Redis, the service and {cores} sandboxed OCaml workers ...")
        url = services.start(cores)
        console.print(f"   Grading at {url}; logs in {run_dir / 'logs'}.")
        console.print(
            "2. Making a model of 0.6 million parameters; it learns the form from answers, many of"
            " them wrong."
        )
        console.print(
            "   Then it is measured, trained with GRPO on the graders' rewards, and measured again."
        )
        config, more = CONFIG, [*(QUICK if quick else ())]
        if vllm is not None:
            console.print(
                "   A vLLM server is started on what the warm start leaves, and writes GRPO's"
                " completions."
            )
            config, more = (
                VLLM_CONFIG,
                [*more, "--generation.url", services.start_vllm(vllm, run_dir / "warm_start")],
            )
        with (
            held_back()
        ):  # a signal during this import, which takes seconds, ends the demo right after it
            from transformers.utils import logging

            from trainer.train import main as train
        logging.disable_progress_bar()
        try:
            status = train(
                configs() / "train" / config,
                ["--output_dir", str(run_dir), "--reward.urls", url, *more],
            )
        except Misuse as misuse:
            raise DemoFailed(f"The training refused its configuration: {misuse}") from None
        if status > SIGNALLED:
            raise KeyboardInterrupt
        if status != EXIT_DONE:
            for service in services.running:
                service.check()
            raise DemoFailed(
                f"The training ended with status {status}; its log is {run_dir / 'training.log'}."
            )
    return _conclude(run_dir, console, started)


def _conclude(run_dir: Path, console: Console, started: float) -> int:
    report = write_report(run_dir, run_dir / "report.html")
    files = RunFolder(run_dir)
    before, after = (
        read_evaluation(files.evaluations / f"{name}.json").evaluation
        for name in ("before", "after")
    )
    modes = [mode for mode in MODES if before.measured(mode) and after.measured(mode)]
    compared = [compare(before, after, mode=mode, anyway=True) for mode in modes]
    metrics = [line for line in read_lines(files.metrics) if "learning_rate" in line]
    trained = [line.get("reward") for line in read_lines(files.completions)]
    faulted = trained.count(None) + before.faulted + after.faulted
    measured = sum(one.graded for side in (before, after) for one in side.measurements)
    graded = len(trained) - trained.count(None) + measured
    rates, change = compared[0].pass_rate, compared[0].pass_rate.change
    verb = "rose" if change.low > 0 else "fell" if change.high < 0 else "did not change measurably:"
    went = f"{verb} from {rates.before:.1%} to {rates.after:.1%}"
    console.print(f"\n[bold]The pass rate on {compared[0].tasks} held-out tasks {went}.[/]")
    console.print(_summary(compared, before, after))
    console.print(
        "Held-out: the kinds of task that were trained on, with constants never trained on for that"
        " kind."
    )
    faults = f"[bold red]{faulted:,} faults[/]" if faulted else "no faults"
    # From the start of the first step to the end of the last.
    training_s = (
        metrics[-1]["time"] - metrics[0]["time"] + metrics[0].get("step_time", 0.0)
        if metrics
        else 0.0
    )
    steps = f"{len(metrics)} GRPO steps in {duration(training_s)}"
    console.print(
        f"{graded:,} submissions graded, {faults}; {steps}; {duration(time.monotonic() - started)}"
        " for everything."
    )
    name = "generation/sync_logprob_difference_max"
    if synced := [line[name] for line in metrics if line.get(name) is not None]:
        console.print(
            f"Trainer and vLLM server: log-probabilities differed by {max(synced):.1e} at most"
            " after a sync."
        )
    console.print(f"The report: {report.resolve()}")
    return EXIT_FAULTED if faulted else EXIT_DONE


def _summary(compared: Sequence[Comparison], *sides: Evaluation) -> Table:
    table = Table("held-out tasks", "before", "after", "change in points")
    for found in compared:
        change = found.pass_rate.change
        how = "greedy" if found.mode == "greedy" else f"{found.after.samples} completions per task"
        points = f"{100 * change.value:+.1f}\n{100 * change.low:+.1f} to {100 * change.high:+.1f}"
        measured = [side.measured(found.mode) for side in sides]
        own = [one.pass_at[1] for one in measured if one is not None]
        table.add_row(
            how, *(f"{one.value:.1%}\n{one.low:.1%} to {one.high:.1%}" for one in own), points
        )
    return table


def refuse_without_tools() -> None:
    """Raises DemoFailed if a program is missing."""
    if missing := [f"{tool} ({how})" for tool, how in NEEDED.items() if shutil.which(tool) is None]:
        raise DemoFailed(
            f"These programs are missing: {', '.join(missing)}. `make setup` installs all of them."
        )


def set_aside(run_dir: Path) -> Path | None:
    """Move an earlier run to the next free `run_dir.N`; where to, or None when there was none."""
    if not run_dir.exists() or (run_dir.is_dir() and not any(run_dir.iterdir())):
        return None
    return run_dir.rename(free_name(run_dir.with_name(f"{run_dir.name}.")))


# ---------------------------------------------------------------------------------------- services


class Service(Child):
    """One program that the demo started, in a process group of its own."""

    def __init__(self, name: str, command: Sequence[str], log: Path, hint: str) -> None:
        super().__init__(command, log, environment=without_settings(os.environ))
        self.name = name
        self.hint = hint

    def check(self) -> None:
        """Raises DemoFailed with the end of its log when it has died."""
        status = self.process.poll()
        if status is not None:
            raise DemoFailed(
                f"{self.name} ended with status {status}. {self.hint}\n{self.end_of_log()}"
            )

    def end_of_log(self) -> str:
        return f"The end of {self.log}:\n{self.tail(TAIL_LINES) or '  (it is empty)'}"


@dataclass(slots=True)
class Services:
    """Redis, the API and the workers; leaving the `with` block stops them all, the last started
    first."""

    logs: Path
    running: list[Service] = field(default_factory=list)
    folder: Path | None = None
    starter: threading.Thread | None = None
    stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self, workers: int) -> str:
        """Start everything and wait until it is ready; returns the service's address. Raises
        DemoFailed."""
        self.folder = Path(tempfile.mkdtemp(prefix="gradus-demo-"))
        redis_port, port = free_port(), free_port()
        redis, url = f"redis://127.0.0.1:{redis_port}/0", f"http://127.0.0.1:{port}"
        settings = ["--port", str(redis_port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        self._spawn("redis", ["redis-server", *settings, "--save", "", "--appendonly", "no"], "")
        self._wait("Redis", REDIS_READY_S, lambda: _connects(redis_port))
        self._spawn("serve", [*GRADUS, "serve", "--redis", redis, "--port", str(port)], "")
        command = [*GRADUS, "worker", GRADER, "--redis", redis, "--slots", "1"]
        for number in range(1, workers + 1):
            self._spawn(f"worker-{number}", command, "`gradus doctor` says what is missing.")
        self._wait("the service", SERVICE_READY_S, lambda: _connects(port))
        self._wait("the workers", WORKERS_READY_S, lambda: _live_workers(url) >= workers)
        return url

    def start_vllm(self, gradus: Path, model: Path) -> str:
        """Start a vLLM server as soon as there is a model in that folder; returns the address that
        it will have."""
        port = free_port()
        command = [str(gradus), "vllm", str(model), "--port", str(port), *VLLM_OPTIONS]

        def start() -> None:
            while not model.exists():
                if self.stopping.wait(0.2):
                    return
            self._spawn("vllm", command, "`make vllm` installs it anew when .venv-vllm is removed.")
            self.stopping.wait()  # the kernel ends the server when the thread that started it ends

        self.starter = threading.Thread(target=start, daemon=True)
        self.starter.start()
        return f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Ask every program to end, then make it; safe to call twice."""
        self.stopping.set()
        if self.starter is not None:
            self.starter.join()
        while self.running:
            self.running.pop().end()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(self, name: str, command: Sequence[str], hint: str) -> None:
        self.running.append(Service(name, command, self.logs / f"{name}.log", hint))

    def _wait(self, what: str, timeout_s: float, is_ready: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + timeout_s
        while not is_ready():
            for service in self.running:
                service.check()
            if time.monotonic() > give_up_at:
                tails = "\n".join(service.end_of_log() for service in self.running)
                raise DemoFailed(f"{what} did not get ready within {timeout_s:.0f} s.\n{tails}")
            time.sleep(0.1)


def free_port() -> int:
    """A port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _connects(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _live_workers(url: str) -> int:
    try:
        graders = asyncio.run(RewardClient(url).graders())
    except QueueFault:
        return 0
    return sum(info.workers for info in graders if info.name == GRADER)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo like Ctrl-C, so that it cleans up."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handled_by(stop, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        yield


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
