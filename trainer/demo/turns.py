"""`make demo-turns`: a tiny model learns to repair its answers; the same weights learn from single
ones. Three seeds.

For each seed, one warm start is trained twice: over several turns, and with single turns until as
many tokens of its own were trained on. Both models are measured on the held-out tasks with the same
number of turns. All seeds train side by side; the services are those of `make demo`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from gradus.resources import configs
from trainer.demo.run import EXIT_DONE, QUICK, Service, Services, run_demo
from trainer.evaluate.breakdowns import Turns
from trainer.evaluate.held_out import AFTER, BEFORE
from trainer.evaluate.intervals import Rate, mean_over_runs
from trainer.evaluate.report import write_report
from trainer.evaluate.results import figures_path, read_evaluation
from trainer.pipeline.subprocesses import GRADUS
from trainer.runs.folder import RunFolder, read_lines

CONFIG = "demo_ocaml_turns.yaml"
RUN = Path("runs/demo-turns")
SEEDS = (42, 43, 44)
WIDTH = 132
"""Columns of the tables."""
WARM_START, TURNS, SINGLE = "warm start", "several turns", "single turns"


@dataclass(frozen=True, slots=True)
class Measured:
    """One model on the held-out tasks: shares of its chains that passed."""

    tokens: int
    """Tokens of its own that it was trained on by GRPO."""
    first: float
    """Passed in the first turn."""
    last: float
    """Passed in any turn."""


def main(seeds: Sequence[int], quick: bool) -> int:
    """Train and measure all seeds. Returns the exit status."""
    console = Console(highlight=False, soft_wrap=True, record=True, width=WIDTH)
    started = time.monotonic()

    def train_and_measure(services: Services, url: str) -> int:
        _train(RUN, seeds, url, QUICK if quick else (), console)
        for seed in seeds:
            folder = RUN / f"seed-{seed}"
            write_report(folder / "turns", folder / "report.html")
        console.print(table_of({seed: measured_of(RUN / f"seed-{seed}") for seed in seeds}))
        took = timedelta(seconds=round(time.monotonic() - started))
        console.print(f"{took} in all; reports are in seed-*/report.html.")
        console.save_text(str(RUN / "comparison.txt"))
        return EXIT_DONE

    what = "[bold]Gradus demo of turns:[/] a tiny language model learns to repair its OCaml."
    return run_demo(RUN, console, what, train_and_measure)


def _train(
    run_dir: Path, seeds: Sequence[int], url: str, more: Sequence[str], console: Console
) -> None:
    """Train over several turns, then with single ones, all seeds side by side. Raises DemoFailed if
    one fails."""
    train = ["train", str(configs() / "train" / CONFIG), "--reward.urls", url]
    commands = {}
    for seed in seeds:
        out = ["--output_dir", str(run_dir / f"seed-{seed}" / "turns")]
        commands[seed] = [*train, "--seed", str(seed), *more, *out]
    _run_all(TURNS, commands, run_dir / "logs", console)
    for seed in seeds:
        turns = run_dir / f"seed-{seed}" / "turns"
        asked = _turns_of(turns, AFTER).asked
        start = ["--model.name", str(turns / "warm_start"), "--warm_start", "null"]
        one_turn = ["--turns.max", "1", "--evaluation.turns", str(asked)]
        steps = ["--max_steps", str(steps_of_single_turns(turns))]
        out = ["--output_dir", str(run_dir / f"seed-{seed}" / "single")]
        commands[seed] = [*train, "--seed", str(seed), *start, *one_turn, *steps, *out]
    _run_all(SINGLE, commands, run_dir / "logs", console)


def _run_all(
    what: str, commands: Mapping[int, Sequence[str]], logs: Path, console: Console
) -> None:
    """Run one `gradus` command for each seed, all side by side."""
    with ExitStack() as stack:
        running = []
        for seed, command in commands.items():
            console.print(f"{time.strftime('%H:%M:%S')} seed {seed}: {what} ...")
            log = logs / f"seed-{seed}-{what.replace(' ', '-')}.log"
            started = Service(f"{what} of seed {seed}", [*GRADUS, *command], log)
            stack.callback(started.end)
            running.append(started)
        for started in running:
            if started.process.wait() != EXIT_DONE:
                started.check()


def _turns_of(run: Path, name: str) -> Turns:
    """What came of asking again when the held-out tasks were measured."""
    found = read_evaluation(figures_path(run, name)).measured("sampled")
    assert found is not None, "the configuration has evaluation.samples"
    assert found.turns is not None, "the configuration has turns"
    return found.turns


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
    turns = _turns_of(run, name)
    tokens = 0
    if name == AFTER:
        tokens = sum(line["tokens"] for line in read_lines(RunFolder(run).turns))
    return Measured(tokens, turns.green_by[1].value, turns.green_by[turns.asked].value)


def table_of(measured: dict[int, dict[str, Measured]]) -> Table:
    """The figures of all models, with intervals over seeds."""
    columns = ("model tokens", "passed in turn 1", "passed by the last turn", "gain in points")
    table = Table(f"{len(measured)} seeds", *columns)
    values: dict[str, list[tuple[float, float, float]]] = {}
    for name in (WARM_START, TURNS, SINGLE):
        models = [found[name] for found in measured.values()]
        values[name] = [(one.first, one.last, one.last - one.first) for one in models]
        first, last, gain = map(mean_over_runs, zip(*values[name], strict=True))
        tokens = fmean(one.tokens for one in models)
        table.add_row(name, f"{tokens:,.0f}", _text(first), _text(last), _points(gain))
    apart = []
    for turns, single in zip(values[TURNS], values[SINGLE], strict=True):
        apart.append([a - b for a, b in zip(turns, single, strict=True)])
    differences = map(mean_over_runs, zip(*apart, strict=True))
    table.add_row(f"{TURNS} minus {SINGLE}, points", "", *map(_points, differences))
    return table


def _text(rate: Rate | None) -> str:
    return "" if rate is None else f"{rate.value:.1%} ({rate.low:.1%} to {rate.high:.1%})"


def _points(rate: Rate | None) -> str:
    if rate is None:
        return ""
    return f"{100 * rate.value:+.1f} ({100 * rate.low:+.1f} to {100 * rate.high:+.1f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m trainer.demo.turns", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument(
        "--quick", action="store_true", help="a dozen steps, only to see that everything works"
    )
    chosen = parser.parse_args()
    sys.exit(main(chosen.seeds, chosen.quick))
