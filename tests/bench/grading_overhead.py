"""What grading adds to a training step when completions are graded as they come: OCaml grading
beside a constant.

`python -m tests.bench.grading_overhead MODEL` trains the demo's tasks from a warm-started MODEL,
step by step in turns with grading and with a constant in its place, so that others' work on the
machine hits all alike. The next run has the same steps with the kinds exchanged, and a turn is one
step with all kinds: the learning rate is 0, so in process its completions are the same. No task
comes twice in a run, so that no verdict is from a cache. With `--vllm GRADUS` it starts a vLLM
server, else the trainer's own process generates. `--grown 10m` gives every token the cost of a
model of 10 million parameters and leaves the answers as they are. It measures steps, not learning.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.grading_overhead_models import SIZES, grow
from tests.bench.grading_overhead_run import CONSTANT, KINDS
from tests.bench.ocaml import machine
from trainer.demo.run import Services
from trainer.runs.folder import read_lines

SHOWN = (
    "step_time",
    "time/grade_s",
    "generation/generate_s",
    "generation/sync_s",
    "trainer_cpu_s",
    "grading_cpu_s",
    "generation_cpu_s",
    "gradus/early",
    "gradus/cached",
    "gradus/passed",
    "completions/mean_length",
)
"""Of metrics.jsonl."""
Step = dict[str, Any]
Turn = dict[str, Step]
"""One step of training as each kind."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.grading_overhead", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "model", type=Path, help="a warm-started model, such as runs/demo/warm_start"
    )
    parser.add_argument("--grown", choices=SIZES, help="to how many parameters")
    parser.add_argument("--vllm", type=Path, help="the gradus of an environment with vLLM")
    parser.add_argument("--rounds", type=int, default=2, help="of as many runs as there are kinds")
    parser.add_argument(
        "--steps",
        type=int,
        default=15,
        help="of one run, all kinds together; 15 are all tasks once",
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--nice", type=int, default=0, help="of the service and the workers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--more", nargs=argparse.REMAINDER, default=[], help="overrides for every run"
    )
    given = parser.parse_args()
    toolchain = subprocess.run(
        ["ocaml", "-version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="gradus-bench-") as place:
        if given.grown:
            grow(given.model, Path(place) / "model", SIZES[given.grown])
            given.model = Path(place) / "model"
        found = measured(given, Path(place))
    who = {"generation": "vLLM" if given.vllm else "in process", "model": given.grown or "as it is"}
    print(json.dumps({"machine": machine(toolchain), **who, **found}, indent=1))


def measured(given: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Medians over all counted steps of all rounds, and ratios to the step with a constant of the
    same turn."""
    turns: list[Turn] = []
    with generation(given, place) as (options, servers):
        for number in range(given.rounds):
            runs = [
                one_run(given, place / f"{number}-{first}", first, options, servers)
                for first in range(len(given.kinds))
            ]
            for steps in zip(*runs, strict=True):
                turns.append({step["kind"]: step for step in steps})
    of_kind = {}
    for kind in given.kinds:
        of_kind[kind] = [turn[kind] for turn in turns]
    return {
        "steps_each": len(turns),
        "medians": {kind: _medians(steps) for kind, steps in of_kind.items()},
        # Others' work only ever makes a step longer, so the fastest one of each kind is the one
        # least disturbed.
        "fastest_step_s": {kind: _fastest(steps) for kind, steps in of_kind.items()},
        "fastest_to_constant": {
            kind: _fastest(steps) / _fastest(of_kind[CONSTANT]) for kind, steps in of_kind.items()
        },
        "turns_to_constant": {
            kind: _ratios(turns, kind) for kind in given.kinds if kind != CONSTANT
        },
    }


def _fastest(steps: list[Step]) -> float:
    return min(float(step["step_time"]) for step in steps)


def _medians(steps: list[Step]) -> Step:
    medians = {}
    for name in SHOWN:
        values = [step[name] for step in steps if step.get(name) is not None]
        if values:
            medians[name] = round(statistics.median(values), 4)
    return medians


def _ratios(turns: list[Turn], kind: str) -> dict[str, float]:
    """Quartiles; a middle one of 1.1 says that half of the turns had less."""
    ratios = [turn[kind]["step_time"] / turn[CONSTANT]["step_time"] for turn in turns]
    lower, middle, upper = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"lower": round(lower, 3), "median": round(middle, 3), "upper": round(upper, 3)}


@contextmanager
def generation(
    given: argparse.Namespace, place: Path
) -> Iterator[tuple[list[str], Services | None]]:
    """The options of who generates, and what runs for it inside the block."""
    if given.vllm is None:
        yield ["--generation.backend", "in_process"], None
        return
    (place / "vllm").mkdir()
    with Services(place / "vllm") as services:
        url = services.start_vllm(given.vllm, given.model)
        yield ["--generation.url", url, "--generation.verify_sync", "first"], services


def one_run(
    given: argparse.Namespace,
    folder: Path,
    first: int,
    options: list[str],
    servers: Services | None,
) -> list[Step]:
    """The counted steps of one run that begins with kind `first`, with a service of its own."""
    logs = folder.with_name(folder.name + "-logs")
    logs.mkdir()
    with Services(logs) as services:
        url = services.start(given.workers)
        for service in services.running:
            os.setpriority(os.PRIO_PGRP, service.process.pid, given.nice)
        watched = {"grading": _pids(services), "generation": _pids(servers)}
        kinds = ",".join([*given.kinds[first:], *given.kinds[:first]])
        command = [
            sys.executable,
            "-m",
            "tests.bench.grading_overhead_run",
            kinds,
            json.dumps(watched),
        ]
        command += [
            "--output_dir",
            str(folder),
            "--model",
            str(given.model),
            "--max_steps",
            str(given.steps),
        ]
        command += [
            "--reward.urls",
            url,
            "--reward.early",
            "true",
            "--save_strategy",
            "'no'",
            *options,
            *given.more,
        ]
        with (logs / "training.log").open("wb") as log:
            status = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        if status != 0:
            raise SystemExit((logs / "training.log").read_text(errors="replace")[-3000:])
    steps: list[Step] = []
    for line in read_lines(folder / "metrics.jsonl"):
        steps.append({name: line[name] for name in ("kind", *SHOWN) if name in line})
    print(*map(json.dumps, steps), sep="\n", file=sys.stderr, flush=True)
    return steps[1:]  # the first one loads and connects


def _pids(services: Services | None) -> list[int]:
    return [service.process.pid for service in services.running] if services else []


if __name__ == "__main__":
    main()
