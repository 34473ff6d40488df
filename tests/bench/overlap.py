"""What grading adds to a training step when completions are graded as they come: OCaml grading beside a constant.

`python -m tests.bench.overlap MODEL` trains the demo's tasks from a warm-started MODEL in turns, with grading and with
a constant in its place, all else alike: the learning rate is 0, so that both write the same kind of completions
throughout. Each turn has a service of its own, so no verdict comes from a cache. With `--vllm GRADUS` it starts a vLLM
server, else the trainer's own process generates. It measures steps, not learning.
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

from gradus.resources import configs
from tests.bench.ocaml import cpu_of_tree, machine
from trainer.demo.run import Services
from trainer.run_folder import read_lines

KINDS = ("constant", "graded", "graded late")
"""`graded late`: everything is sent when the last completion is written (`reward.early: false`)."""
UNCOUNTED_STEPS = 2
"""The first ones, which load and connect."""
SHOWN = ("step_time", "time/generate_s", "time/grade_s", "time/update_s", "gradus/early", "gradus/cached")
Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overlap", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="a warm-started model, such as runs/demo/warm_start")
    parser.add_argument("--vllm", type=Path, help="the gradus of an environment with vLLM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--nice", type=int, default=0, help="of the service and the workers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="overrides for every run")
    given = parser.parse_args()
    toolchain = subprocess.run(["ocaml", "-version"], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="gradus-bench-") as place:
        found = measured(given, Path(place))
    who = "vLLM" if given.vllm else "in process"
    print(json.dumps({"machine": machine(toolchain), "generation": who, **found}, indent=1))


def measured(given: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Medians over all counted steps of all rounds, and the ratios to the steps with a constant."""
    kinds = tuple(given.kinds)
    steps: dict[str, list[Figures]] = {kind: [] for kind in kinds}
    with generation(given, place) as options:
        for number in range(given.rounds):
            for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
                steps[kind] += one_turn(given, place / f"{number}-{kind}", kind, options)
    medians = {kind: _medians(of_kind) for kind, of_kind in steps.items()}
    base = medians["constant"]["step_time"]
    ratios = {kind: round(found["step_time"] / base, 3) for kind, found in medians.items()}
    return {"steps_each": len(steps["constant"]), "medians": medians, "step_time_to_constant": ratios}


def _medians(steps: list[Figures]) -> Figures:
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: round(statistics.median(step.get(name, 0.0) for step in steps), 4) for name in names}


@contextmanager
def generation(given: argparse.Namespace, place: Path) -> Iterator[list[str]]:
    """The options of who generates; a vLLM server runs inside the block."""
    if given.vllm is None:
        yield ["--generation.backend", "in_process"]
        return
    (place / "vllm").mkdir()
    with Services(place / "vllm") as services:
        yield ["--generation.url", services.start_vllm(given.vllm, given.model), "--generation.verify_sync", "first"]


def one_turn(given: argparse.Namespace, folder: Path, kind: str, options: list[str]) -> list[Figures]:
    """The counted steps of one run, each with the CPU seconds of a step beside its times."""
    logs = folder.with_name(folder.name + "-logs")
    logs.mkdir()
    with Services(logs) as services:
        url = services.start(given.workers)
        for service in services.running:
            os.setpriority(os.PRIO_PGRP, service.process.pid, given.nice)
        early = "false" if kind == "graded late" else "true"
        command = [sys.executable, "-m", "tests.bench.overlap_run", kind, "--output_dir", str(folder)]
        command += ["--model", str(given.model), "--max_steps", str(given.steps), "--reward.urls", url]
        command += ["--reward.early", early, *options, *given.more]
        before = [cpu_of_tree(service.process.pid) for service in services.running]
        with (logs / "training.log").open("wb") as log:
            status = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        if status != 0:
            raise SystemExit((logs / "training.log").read_text(errors="replace")[-3000:])
        after = [cpu_of_tree(service.process.pid) for service in services.running]
    grading_cpu_s = (sum(after) - sum(before)) / given.steps
    lines = read_lines(folder / "metrics.jsonl")[UNCOUNTED_STEPS:]
    return [{**{name: line[name] for name in SHOWN if name in line}, "grading_cpu_s": grading_cpu_s} for line in lines]


def config() -> Path:
    return configs() / "train" / "demo_ocaml_vllm.yaml"


if __name__ == "__main__":
    main()
