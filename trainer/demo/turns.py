"""`make demo-turns`: a tiny model learns to repair its answers; the same weights learn from single
ones. Three seeds.

For each seed, one warm start is trained twice: over several turns, and with single turns until as
many tokens of its own were trained on. Both models are measured on the held-out tasks with the same
number of turns. All seeds train side by side; the services are those of `make demo`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gradus.resources import configs
from trainer.demo.run import (
    EXIT_DONE,
    EXIT_FAILED,
    QUICK,
    SIGNALLED,
    DemoFailed,
    Service,
    Services,
    refuse_without_tools,
    set_aside,
    terminable,
)
from trainer.evaluate.held_out import AFTER, BEFORE
from trainer.evaluate.intervals import (
    Rate,
    by_task,
    mean_over_runs,
    mean_with_interval,
    paired_difference,
)
from trainer.evaluate.report import write_report
from trainer.evaluate.results import figures_path, read_evaluation
from trainer.pipeline.console import duration
from trainer.pipeline.subprocesses import GRADUS
from trainer.runs.folder import RunFolder, read_lines

CONFIG = "demo_ocaml_turns.yaml"
SEEDS = (42, 43, 44)
LOOK_EVERY_S = 0.25
WIDTH = 132
"""Columns of the tables."""
WARM_START, TURNS, SINGLE = "warm start", "several turns", "single turns"
HINT = "Its log is complete; `gradus doctor` says what is missing."


@dataclass(frozen=True, slots=True)
class Measured:
    """One model on the held-out tasks: shares of its chains that passed, by task."""

    tokens: int
    """Tokens of its own that it was trained on by GRPO."""
    first: list[float]
    """Passed in the first turn."""
    last: list[float]
    """Passed in any turn."""
    faulted: int
    """Chains without a verdict in one of their turns, which are left out."""


def main(
    run_dir: Path = Path("runs/demo-turns"), seeds: Sequence[int] = SEEDS, quick: bool = False
) -> int:
    """Train and measure all seeds in `run_dir`. Returns the exit status."""
    console = Console(highlight=False, soft_wrap=True, record=True, width=WIDTH)
    started = time.monotonic()
    try:
        with terminable():
            refuse_without_tools()
            aside = set_aside(run_dir)
            (run_dir / "logs").mkdir(parents=True)
            console.print(
                "[bold]Gradus demo of turns:[/] a tiny language model learns to repair its OCaml."
            )
            if aside is not None:
                console.print(f"The run that was in {run_dir} is now in {aside}.")
            with Services(run_dir / "logs") as services:
                cores = (
                    len(os.sched_getaffinity(0))
                    if hasattr(os, "sched_getaffinity")
                    else os.cpu_count() or 1
                )
                url = services.start(cores)
                console.print(f"Grading at {url}; logs in {run_dir / 'logs'}.")
                _train(run_dir, seeds, url, QUICK if quick else (), console)
            for seed in seeds:
                write_report(
                    run_dir / f"seed-{seed}" / "turns", run_dir / f"seed-{seed}" / "report.html"
                )
            measured = {seed: measured_of(run_dir / f"seed-{seed}") for seed in seeds}
            for table in tables_of(measured):
                console.print(table)
            console.print(
                f"{duration(time.monotonic() - started)} for everything; reports are in"
                " seed-*/report.html."
            )
            console.save_text(str(run_dir / "comparison.txt"))
    except DemoFailed as failure:
        console.print(f"\n[bold red]The demo stopped.[/] {escape(str(failure))}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        console.print("\nStopped. Everything that the demo had started is stopped too.")
        return SIGNALLED + signal.SIGINT
    return EXIT_DONE


def _train(
    run_dir: Path, seeds: Sequence[int], url: str, more: Sequence[str], console: Console
) -> None:
    """Run the commands of each seed in their order, all seeds side by side. Raises DemoFailed if
    one fails."""
    waiting = {seed: _commands(run_dir / f"seed-{seed}", seed, url, more) for seed in seeds}
    running: dict[int, Service] = {}
    with ExitStack() as stack:
        while waiting:
            for seed, commands in list(waiting.items()):
                if seed in running and running[seed].process.poll() is None:
                    continue
                if seed in running and running[seed].process.returncode != EXIT_DONE:
                    running[seed].check()
                try:
                    name, command = next(commands)
                except StopIteration:
                    del waiting[seed]
                    continue
                console.print(f"{time.strftime('%H:%M:%S')} seed {seed}: {name} ...")
                log = run_dir / "logs" / f"seed-{seed}-{name.replace(' ', '-')}.log"
                running[seed] = Service(f"{name} of seed {seed}", [*GRADUS, *command], log, HINT)
                stack.callback(running[seed].end)
            time.sleep(LOOK_EVERY_S)


def _commands(
    folder: Path, seed: int, url: str, more: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Names and arguments of the `gradus` commands of one seed. Each reads what those before it
    have written."""
    train = ["train", str(configs() / "train" / CONFIG), "--seed", str(seed), "--reward.urls", url]
    yield TURNS, [*train, *more, "--output_dir", str(folder / "turns")]
    start = ["--model.name", str(folder / "turns" / "warm_start"), "--warm_start", "null"]
    one_turn = ["--turns.max", "1", "--evaluation.turns", str(turns_of(folder / "turns"))]
    steps = ["--max_steps", str(steps_of_single_turns(folder / "turns"))]
    yield SINGLE, [*train, *start, *one_turn, *steps, "--output_dir", str(folder / "single")]


def turns_of(run: Path) -> int:
    """Turns in which the held-out tasks were measured after that run."""
    found = read_evaluation(figures_path(run, AFTER)).evaluation.measured("sampled")
    assert found is not None, "the configuration has evaluation.samples"
    assert found.turns is not None, "the configuration has turns"
    return found.turns.asked


def steps_of_single_turns(run: Path) -> int:
    """Steps with which single turns train on about as many tokens of the model as that run over
    several turns.

    First answers of the run are what a step of single turns has.
    """
    turns = read_lines(RunFolder(run).turns)
    first = sum(line["tokens"] for line in turns if line["turn"] == 1)
    return int(
        max(line["step"] for line in turns) * sum(line["tokens"] for line in turns) / first + 0.5
    )


def measured_of(folder: Path) -> dict[str, Measured]:
    """What one seed's models pass: after the warm start, and after each of the two trainings."""
    return {
        WARM_START: _measured(folder / "turns", BEFORE),
        TURNS: _measured(folder / "turns", AFTER),
        SINGLE: _measured(folder / "single", AFTER),
    }


def _measured(run: Path, name: str) -> Measured:
    figures = figures_path(run, name)
    records, later = (
        read_evaluation(figures).records(),
        read_lines(figures.with_name(f"{name}.turns.jsonl")),
    )
    repaired = {(one["prompt_id"], one["sample"]) for one in later if one["passed"]}
    faulted = {
        (one["prompt_id"], one["sample"])
        for one in [*records, *later]
        if one["status"] == "faulted"
    }
    tasks = by_task(one for one in records if (one["prompt_id"], one["sample"]) not in faulted)
    first = [[bool(one["passed"]) for one in task] for task in tasks]
    last = [
        [bool(one["passed"]) or (one["prompt_id"], one["sample"]) in repaired for one in task]
        for task in tasks
    ]
    tokens = sum(one["tokens"] for one in read_lines(RunFolder(run).turns)) if name == AFTER else 0
    shares = [[sum(task) / len(task) for task in passed] for passed in (first, last)]
    return Measured(tokens, shares[0], shares[1], len(faulted))


def tables_of(measured: dict[int, dict[str, Measured]]) -> list[Table]:
    """The figures of each seed with intervals over tasks, and those of all seeds with intervals
    over seeds."""
    single = Table(
        "seed",
        "model",
        "model tokens",
        "passed in turn 1",
        "passed by the last turn",
        "gain in points",
        "faults",
    )
    values: dict[str, dict[str, list[float]]] = {}
    for seed, models in measured.items():
        for name, one in models.items():
            rates = (
                mean_with_interval(one.first),
                mean_with_interval(one.last),
                paired_difference(one.first, one.last),
            )
            single.add_row(
                str(seed),
                name,
                f"{one.tokens:,}",
                *(_text(rate) for rate in rates[:2]),
                _points(rates[2]),
                f"{one.faulted}",
            )
            found = values.setdefault(name, {"first": [], "last": [], "gain": []})
            for column, rate in zip(found.values(), rates, strict=True):
                column.append(rate.value if rate is not None else 0.0)
    over = Table(
        f"{len(measured)} seeds", "passed in turn 1", "passed by the last turn", "gain in points"
    )
    for name, columns in values.items():
        first, last, gain = map(mean_over_runs, columns.values())
        over.add_row(name, _text(first), _text(last), _points(gain))
    pairs = zip(values[TURNS].values(), values[SINGLE].values(), strict=True)
    apart = [mean_over_runs([a - b for a, b in zip(*pair, strict=True)]) for pair in pairs]
    over.add_row(f"{TURNS} minus {SINGLE}, points", *map(_points, apart))
    return [single, over]


def _text(rate: Rate | None) -> str:
    return "" if rate is None else f"{rate.value:.1%} ({rate.low:.1%} to {rate.high:.1%})"


def _points(rate: Rate | None) -> str:
    return (
        ""
        if rate is None
        else f"{100 * rate.value:+.1f} ({100 * rate.low:+.1f} to {100 * rate.high:+.1f})"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m trainer.demo.turns", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--run-dir", type=Path, default=Path("runs/demo-turns"))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument(
        "--quick", action="store_true", help="a dozen steps, only to see that everything works"
    )
    chosen = parser.parse_args()
    sys.exit(main(chosen.run_dir, chosen.seeds, chosen.quick))
