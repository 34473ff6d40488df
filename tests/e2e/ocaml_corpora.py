"""Grade the OCaml corpora beside the checkout: every verified record must pass with its reference and fail with its stub.

Prints the counts. Run as a script (`python tests/e2e/ocaml_corpora.py`) it first installs the Debian packages that the
corpora need, when it may; the test in test_ocaml_corpora.py uses the same functions.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gradus.contract import Graded, OcamlSubmission
from gradus.errors import Fault
from services.graders.ocaml.grader import OcamlGrader

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
CORPORA = ("ocaml_exercism.jsonl", "ocaml_ocamlorg_99.jsonl")
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


def submission(record: dict[str, Any], code: str) -> OcamlSubmission:
    task = {
        "tests": record["tests"],
        "signature": record.get("interface"),
        "module": record["module"],
        "packages": [package for package in record["packages"]],
        "files": record.get("extra_files") or {},
        "framework": "ounit2",
        "limits": {"cpu_s": 60},
    }
    return OcamlSubmission.model_validate({"id": record["id"], "completion": f"```ocaml\n{code}\n```", "task": task})


def missing_packages() -> list[str]:
    """Debian packages that the corpora need and that are not installed."""
    have = subprocess.run(["ocamlfind", "list"], capture_output=True, text=True, check=False).stdout
    installed = {line.split()[0] for line in have.splitlines() if line}
    return sorted(debian for package, debian in DEBIAN.items() if package not in installed)


def install(packages: list[str]) -> None:
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], check=True)


def grade_all(grader: OcamlGrader, workers: int = 2) -> list[tuple[dict[str, Any], str, Graded | Fault]]:
    jobs = [(record, which) for record in records() for which in ("solution", "stub")]

    def one(item: tuple[int, tuple[dict[str, Any], str]]) -> tuple[dict[str, Any], str, Graded | Fault]:
        index, (record, which) = item
        try:
            slot = index % workers
            return record, which, grader.grade(submission(record, record[which]), "ocaml/graduated@1", slot)
        except Fault as fault:
            return record, which, fault

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, enumerate(jobs)))


def wrong(which: str, result: Graded | Fault, record: dict[str, Any]) -> str | None:
    if isinstance(result, Fault):
        return f"{record['id']} {which}: fault: {result.message[:300]}"
    if which == "stub":
        return f"{record['id']}: the stub passes" if result.passed else None
    counted = result.tests is not None and result.tests.total == record["n_tests"]
    if result.passed and result.reward == 1.0 and counted:
        return None
    return f"{record['id']}: {result.reward} {result.tests} of {record['n_tests']} {result.flags} {result.diagnostics[:2]}"


def main() -> int:
    install(missing_packages())
    results = grade_all(OcamlGrader())
    problems = [problem for record, which, result in results if (problem := wrong(which, result, record))]
    counts = Counter((record["corpus"], which) for record, which, _ in results)
    for (corpus, which), number in sorted(counts.items()):
        print(f"{corpus}: {number} x {which}")
    print(f"{len(results)} graded, {len(problems)} not as they should be")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
