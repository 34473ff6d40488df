"""What one case of a program costs in its box, beside the bare process, in every language that is
installed. CPU of all that runs, in one interleaved run; every output is asserted.

`python -m tests.bench.programs [--cases 40]`
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradus.tasks.base import RunLimits
from services.graders.program.boxes import Boxes
from services.graders.program.grader import ProgramGrader
from services.graders.program.languages import SEARCH_PATH, Language

STDIN = "20 22\n"


def measure_bare(language: Language, file: Path) -> float:
    """Return the CPU seconds of one run without a box."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = language.fill(language.settings.run, file=str(file))
    done = subprocess.run(
        argv,
        input=STDIN.encode(),
        capture_output=True,
        check=True,
        env={"PATH": SEARCH_PATH, **language.environment},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.split() == [b"42"]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_boxed(boxes: Boxes, language: Language, program: bytes) -> float:
    """Return the CPU seconds of one run in a box, with what this process spends on it."""
    before = time.process_time()
    limits = boxes.build_limits(language, RunLimits(), 3.0)
    outcome = boxes.run(language, program, stdin=STDIN, limits=limits)
    assert outcome.stdout.split() == [b"42"], outcome
    return time.process_time() - before + outcome.cpu_s


@contextmanager
def prepare(grader: ProgramGrader, name: str) -> Iterator[tuple[Language, Path, bytes]]:
    """Compile the example of a language, and run it once: its standing box starts. Yields the file
    of the program, too."""
    language = grader.languages[name]
    built, _ = grader.boxes.compile(language, language.settings.example)
    assert built.program is not None, built.message
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program"
        file.write_bytes(built.program)
        file.chmod(0o755)
        measure_boxed(grader.boxes, language, built.program)
        yield language, file, built.program


def measure_cases(grader: ProgramGrader, name: str, n_cases: int) -> tuple[float, float]:
    """Return the mean CPU seconds of a case in its box, and of the bare process, in turns."""
    boxed, bare = [], []
    with prepare(grader, name) as (language, file, program):
        for _ in range(n_cases):
            bare.append(measure_bare(language, file))
            boxed.append(measure_boxed(grader.boxes, language, program))
    return statistics.mean(boxed), statistics.mean(bare)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=40, help="runs of each kind and language")
    n_cases = parser.parse_args().cases
    grader = ProgramGrader()
    print("| language | compile, ms | bare, ms | in a box, ms | ratio behind 5 ms |")
    print("|---|--:|--:|--:|--:|")
    for name, language in grader.languages.items():
        compile_s = grader.boxes.compile(language, language.settings.example)[1]
        boxed_s, bare_s = measure_cases(grader, name, n_cases)
        ratio = max(0.0, boxed_s - 5e-3) / bare_s
        times = f"{compile_s * 1e3:.0f} | {bare_s * 1e3:.1f} | {boxed_s * 1e3:.1f}"
        print(f"| {name} | {times} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
