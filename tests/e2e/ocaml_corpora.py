"""Grade the OCaml corpora beside the checkout: verified records pass with their reference and fail
with their stub.

Prints the counts. Run as a script (`python tests/e2e/ocaml_corpora.py`) it first installs the
Debian packages that the corpora need, when it may; with `--without-packages` it leaves out what
needs any, for an OCaml that has none. The test in test_ocaml_corpora.py uses the same functions.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradus.contract import Faulted, Graded, OcamlSubmission
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
CORPORA = ("ocaml_exercism.jsonl", "ocaml_ocamlorg_99.jsonl")
LIMITS = {
    "exercism-ocaml/perfect-numbers": {"cpu_s": 6},  # its reference takes 0.6 s
    "exercism-ocaml/nth-prime": {"cpu_s": 0.5},
    "ocamlorg/058": {"cpu_s": 0.5},
}
"""Where the grader's defaults are less than ten times what the reference answer costs."""
OTHER_NUMBERS = "ocamlorg/024 solution: 0.675"
"""Asks for six certain random numbers, and the generator of OCaml 5 is another one: one of its two
tests passes."""
DEBIAN = {
    "base": "libbase-ocaml-dev",
    "react": "libreact-ocaml-dev",
    "calendar": "libcalendar-ocaml-dev",
    "ppx_sexp_conv": "libppx-sexp-conv-ocaml-dev",
}


def records() -> Iterator[dict[str, Any]]:
    """Records that were verified upstream with OCaml 4.13.1."""
    for name in CORPORA:
        for line in (DATA / name).read_text().splitlines():
            record = json.loads(line)
            if record["verified_4_13_1"] == "pass":
                yield {**record, "corpus": name}


def submission(record: dict[str, Any], which: str) -> OcamlSubmission:
    task = {
        "tests": record["tests"],
        "signature": record.get("interface"),
        "module": record["module"],
        "packages": record["packages"],
        "files": record.get("extra_files") or {},
        "framework": "ounit2",
        "limits": LIMITS.get(record["id"], {}),
    }
    completion = f"```ocaml\n{record[which]}\n```"
    return OcamlSubmission.model_validate(
        {"id": f"{record['id']} {which}", "completion": completion, "task": task}
    )


def missing_packages() -> list[str]:
    """Debian packages that the corpora need and that are not installed."""
    have = subprocess.run(["ocamlfind", "list"], capture_output=True, text=True, check=False).stdout
    installed = {line.split()[0] for line in have.splitlines() if line}
    return sorted(debian for package, debian in DEBIAN.items() if package not in installed)


def install(packages: list[str]) -> None:
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], check=True
        )


def grade_all(
    grader: OcamlGrader, *, packages: bool = True
) -> list[tuple[dict[str, Any], str, Graded | Faulted]]:
    chosen = [record for record in records() if packages or set(record["packages"]) <= {"ounit2"}]
    jobs = [(record, which) for record in chosen for which in ("solution", "stub")]
    submissions = [submission(record, which) for record, which in jobs]
    results = grade_in_order(grader, submissions, "ocaml/graduated@1")
    return [(record, which, result) for (record, which), result in zip(jobs, results, strict=True)]


def wrong(which: str, result: Graded | Faulted, record: dict[str, Any]) -> str | None:
    if isinstance(result, Faulted):
        return f"{result.id}: fault: {result.fault.message[:300]}"
    if which == "stub":
        return f"{result.id}: the stub passes" if result.passed else None
    counted = result.tests is not None and result.tests.total == record["n_tests"]
    if result.passed and result.reward == 1.0 and counted:
        return None
    return (
        f"{result.id}: {result.reward} {result.tests} of {record['n_tests']} {result.flags}"
        f" {result.diagnostics[:2]}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--without-packages", action="store_true")
    packages = not parser.parse_args().without_packages
    if packages:
        install(missing_packages())
    grader = OcamlGrader()
    results = grade_all(grader, packages=packages)
    found = [wrong(which, result, record) for record, which, result in results]
    problems = [problem for problem in found if problem]
    if grader.toolchain.number >= 500:
        problems = [problem for problem in problems if not problem.startswith(OTHER_NUMBERS)]
    counts = Counter((record["corpus"], which) for record, which, _ in results)
    for (corpus, which), number in sorted(counts.items()):
        print(f"{corpus}: {number} x {which}")
    print(f"{len(results)} graded, {len(problems)} not as they should be")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
