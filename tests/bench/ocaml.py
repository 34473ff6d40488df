"""What one OCaml submission costs in one run: naive pipeline, bare compiler, ours. `make
bench-full` runs it.

CPU is user + system of everything involved, children included; wall is per submission, one at a
time. Rounds alternate between the contestants so that the machine's moods hit all alike; medians
over rounds. Absolute times say little about another machine, ratios do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from gradus.contract import OcamlSubmission
from services.graders.ocaml.grader import OcamlGrader
from services.worker import grade_with_retries
from tests.bench.answers import Written, answers
from tests.ports import free_port

_TICKS = os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------------- contestants


def naive(folder: Path, written: Written) -> bool:
    """Three processes, as the common pipeline has them: types, native compilation, run; no
    sandbox."""
    (folder / "m.ml").write_text(f"{written.code}\n{written.tests}")
    steps = (
        ["ocamlfind", "ocamlc", "-w", "-a", "-i", "m.ml"],
        ["ocamlfind", "ocamlopt", "-w", "-a", "m.ml", "-o", "m"],
    )
    return all(_ran(step, folder) for step in (*steps, ["./m"]))


def floor(folder: Path, written: Written) -> bool:
    """The least that processes can do: one bytecode compilation and one run; no sandbox."""
    (folder / "m.ml").write_text(f"{written.code}\n{written.tests}")
    return _ran(["ocamlc.opt", "-w", "-a", "m.ml", "-o", "m"], folder) and _ran(
        ["ocamlrun", "m"], folder
    )


def _ran(command: list[str], folder: Path) -> bool:
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def submission(written: Written) -> OcamlSubmission:
    task = {"tests": written.tests, "signature": written.signature}
    completion = f"```ocaml\n{written.code}```"
    return OcamlSubmission.model_validate(
        {"id": written.id, "completion": completion, "task": task}
    )


class Ours:
    """The grader as a worker's slot runs it: extraction, boxes, judge, rubric."""

    def __init__(self) -> None:
        self.grader = OcamlGrader()

    def __call__(self, _: Path, written: Written) -> bool:
        result = grade_with_retries(
            self.grader, submission(written), "ocaml/graduated@1", slot=0, brief=False
        )
        assert result is not None
        assert result.status == "graded", result
        return result.passed


# --------------------------------------------------------------------------------------- measuring


def cpu_of_tree(pid: int) -> float:
    """CPU seconds of a live process and everything below it, ended children that were waited for
    included."""
    total = 0
    for entry in descendants(pid):
        fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15]))
    return total / _TICKS


def descendants(pid: int) -> list[int]:
    """Processes below a process, itself included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found, fresh = {pid}, {pid}
    while fresh := {child for child, parent in parents.items() if parent in fresh} - found:
        found |= fresh
    return sorted(found)


def own_cpu() -> float:
    """CPU seconds of this process, of its ended children and of its standing boxes."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    mine = resource.getrusage(resource.RUSAGE_SELF)
    boxes = cpu_of_tree(os.getpid()) - sum(os.times()[:4])
    return mine.ru_utime + mine.ru_stime + ended.ru_utime + ended.ru_stime + boxes


def measure(contestant: Callable[[Path, Written], bool], corpus: list[Written]) -> dict[str, float]:
    walls = []
    with tempfile.TemporaryDirectory() as name:
        before = own_cpu()
        for written in corpus:
            started = time.perf_counter()
            passed = contestant(Path(name), written)
            walls.append((time.perf_counter() - started) * 1e3)
            assert passed is written.right, (contestant, written.id)
        cpu_ms = (own_cpu() - before) * 1e3 / len(corpus)
    walls.sort()
    return {
        "cpu_ms": cpu_ms,
        "wall_p50_ms": walls[len(walls) // 2],
        "wall_p99_ms": walls[int(len(walls) * 0.99)],
    }


# ---------------------------------------------------------------------- REST and Redis


@contextmanager
def services(grader: str) -> Iterator[tuple[str, list[int]]]:
    """A real Redis, an API and a worker with two slots, as processes; their URL and their
    numbers."""
    with tempfile.TemporaryDirectory() as folder:
        redis_port, port = free_port(), free_port()
        gradus = [sys.executable, "-m", "gradus"]
        redis = f"redis://127.0.0.1:{redis_port}/0"
        commands = [
            [
                "redis-server",
                "--port",
                str(redis_port),
                "--save",
                "",
                "--dir",
                folder,
                "--bind",
                "127.0.0.1",
            ],
            [*gradus, "serve", "--redis", redis, "--port", str(port)],
            [*gradus, "worker", grader, "--redis", redis, "--slots", "2"],
        ]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started = [subprocess.Popen(command, **quiet) for command in commands]
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_ready(url)
            yield url, [process.pid for process in started]
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(60)


def _wait_ready(url: str) -> None:
    for _ in range(600):
        try:
            if httpx.get(f"{url}/v1/graders").json()["graders"]:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the services did not become ready")


def measure_rest(
    url: str, pids: list[int], corpus: list[Written], round_number: int
) -> dict[str, float]:
    """All answers, each round's with a comment of its own: new texts to the cache."""
    items = [submission(written).model_dump(mode="json") for written in corpus]
    for item in items:
        item["completion"] = item["completion"].replace(
            "```ocaml\n", f"```ocaml\n(* round {round_number} *)\n"
        )
    return measure_posts(f"{url}/v1/grade/ocaml", pids, items, corpus)


def measure_posts(
    url: str, pids: list[int], items: list[dict[str, Any]], corpus: list[Written]
) -> dict[str, float]:
    """Submissions in batches of 64, two in flight in the worker."""
    before = sum(map(cpu_of_tree, pids))
    started = time.perf_counter()
    for at in range(0, len(items), 64):
        body = {"submissions": items[at : at + 64], "deadline_s": 300}
        results = httpx.post(url, json=body, timeout=310).json()["results"]
        for written, result in zip(corpus[at : at + 64], results, strict=True):
            assert result.get("passed") is written.right, result
    wall_ms = (time.perf_counter() - started) * 1e3 / len(items)
    return {
        "cpu_ms": (sum(map(cpu_of_tree, pids)) - before) * 1e3 / len(items),
        "wall_p50_ms": wall_ms,
    }


# ------------------------------------------------------------------------------------------ report


def run(rounds: int, limit: int) -> dict[str, Any]:
    corpus = list(answers())[:limit]
    ours = Ours()
    contestants: dict[str, Callable[[Path, Written], bool]] = {
        "naive": naive,
        "floor": floor,
        "ours": ours,
    }
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in (*contestants, "rest")}
    measure(ours, corpus[:20])  # the boxes are standing before the first round
    with services("ocaml") as (url, pids):
        measure_rest(url, pids, corpus[:20], -1)
        for number in range(rounds):
            for name, contestant in contestants.items():
                measured[name].append(measure(contestant, corpus))
            measured["rest"].append(measure_rest(url, pids, corpus, number))
            print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    rows = {name: median_of(samples) for name, samples in measured.items()}
    pairs = (("ours", "floor"), ("naive", "ours"), ("rest", "floor"))
    about = {
        "machine": machine(ours.grader.info().toolchain),
        "answers": len(corpus),
        "rounds": rounds,
    }
    return {**about, "rows": rows, "ratios": ratios(measured, pairs)}


def ratios(
    measured: dict[str, list[dict[str, float]]], pairs: Iterable[tuple[str, str]]
) -> dict[str, dict[str, float]]:
    """Of CPU, round by round, of the first of each pair to the second."""
    found = {}
    for one, other in pairs:
        each = [
            a["cpu_ms"] / b["cpu_ms"] for a, b in zip(measured[one], measured[other], strict=True)
        ]
        found[f"{one} / {other}"] = {
            "min": min(each),
            "median": statistics.median(each),
            "max": max(each),
        }
    return found


def median_of(samples: list[dict[str, float]]) -> dict[str, float]:
    medians = {}
    for key in samples[0]:
        medians[key] = round(statistics.median(sample[key] for sample in samples), 2)
    return medians


def machine(toolchain: str) -> str:
    models = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return (
        f"{len(models)} x {models[0] if models else platform.machine()}, Linux"
        f" {platform.release()}, {toolchain}"
    )


TITLES = {
    "naive": "naive: `ocamlfind ocamlc -i`, `ocamlfind ocamlopt`, run; no sandbox",
    "floor": "floor: `ocamlc.opt`, `ocamlrun`; no sandbox",
    "ours": "ours, sandboxed, the worker's path",
    "rest": "ours, sandboxed, through REST and Redis, all processes",
}


def table(report: dict[str, Any], titles: dict[str, str]) -> str:
    lines = [
        (
            f"{report['answers']} answers, {report['rounds']} interleaved rounds, medians."
            f" {report['machine']}."
        ),
        "",
    ]
    lines += [
        "| contestant | CPU ms per submission | wall ms p50 | wall ms p99 |",
        "|---|--:|--:|--:|",
    ]
    for name, title in ((name, title) for name, title in titles.items() if name in report["rows"]):
        row = report["rows"][name]
        lines.append(
            f"| {title} | {row['cpu_ms']} | {row['wall_p50_ms']} | {row.get('wall_p99_ms', '')} |"
        )
    lines += ["", "| ratio of CPU, round by round | min | median | max |", "|---|--:|--:|--:|"]
    for name, ratio in report["ratios"].items():
        lines.append(
            f"| {name} | {ratio['min']:.2f} | {ratio['median']:.2f} | {ratio['max']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def present(
    about: str | None,
    run: Callable[[int, int], dict[str, Any]],
    titles: dict[str, str],
    answers: int,
) -> None:
    """The command line: run, print the table, write the figures."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--answers", type=int, default=answers)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    report = run(arguments.rounds, arguments.answers)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    print(table(report, titles))


if __name__ == "__main__":
    present(__doc__, run, TITLES, answers=200)
