"""Export of tasks as folders of Harbor (format 1.4): instruction, environment, separate verifier.

The hidden tests stand in `tests/`, which Harbor uploads to the verifier's container only. That
container has no network and runs an image that is named by digest and holds Gradus.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.row_reader import Row

SUFFIXES = {"ocaml": "ml", "rust": "rs", "story": "md"}
"""Ending of the answer's file, by grader; `txt` for others."""
VERIFIER_TIMEOUT_S = 300
VERIFIER_MEMORY_MB = 2048
PINNED = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
DELIMITER = "GRADUS_SOLUTION"


def require_pinned(image: str) -> str:
    """Return the name of an image. Raises Misuse without a digest: a tag can move."""
    if not PINNED.fullmatch(image):
        raise Misuse(f"--verifier-image {image}: name it by digest, REPOSITORY@sha256:HEX")
    return image


def build_folders(
    rows: Sequence[Row],
    tasks: Sequence[Mapping[str, Any]],
    grader: str,
    verifier_image: str,
    environment_image: str,
) -> dict[str, dict[str, str]]:
    """Return the files of each task's folder by relative path, by the folder's name.

    Raises Misuse for an id that cannot name a folder, an id twice, and a row without a prompt.
    """
    folders: dict[str, dict[str, str]] = {}
    for row, task in zip(rows, tasks, strict=True):
        name = row.text("id")
        if not NAME.fullmatch(name):
            raise Misuse(f"{row.where}: id: {name!r} is no name of a folder: letters, digits, - _")
        if name in folders:
            raise Misuse(f"{row.where}: the id {name!r} occurred before")
        answer = f"/app/answer.{SUFFIXES.get(grader, 'txt')}"
        folders[name] = {
            "task.toml": _render_configuration(name, grader, answer, verifier_image),
            "instruction.md": f"{row.text('prompt')}\n\nWrite the whole answer to `{answer}`.\n",
            "environment/Dockerfile": f"FROM {environment_image}\nWORKDIR /app\n",
            "tests/test.sh": _render_script(answer),
            "tests/grade.py": Path(__file__).with_name("harbor_verifier.py").read_text(),
            "tests/task.json": json.dumps({"grader": grader, "task": task}) + "\n",
        }
        solution = row.values.get("solution")
        if isinstance(solution, str) and f"\n{DELIMITER}\n" not in f"\n{solution}\n":
            text = f"cat > {answer} <<'{DELIMITER}'\n{solution.rstrip()}\n{DELIMITER}\n"
            folders[name]["solution/solve.sh"] = f"#!/bin/bash\nset -eu\n{text}"
    return folders


def write_folders(out: Path, folders: Mapping[str, Mapping[str, str]]) -> None:
    """Write the folders below `out`, scripts executable."""
    for name, files in folders.items():
        for file, text in files.items():
            path = out / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if path.suffix == ".sh":
                path.chmod(0o755)


def _render_configuration(name: str, grader: str, answer: str, image: str) -> str:
    return f"""schema_version = "1.4"
artifacts = [{json.dumps(answer)}]

[task]
name = {json.dumps(f"gradus/{name}")}
description = {json.dumps(f"A task of the {grader} grader of Gradus")}

[agent]
timeout_sec = 600.0

[verifier]
timeout_sec = {VERIFIER_TIMEOUT_S}.0
environment_mode = "separate"

[verifier.environment]
docker_image = {json.dumps(image)}
network_mode = "no-network"
cpus = 1
memory_mb = {VERIFIER_MEMORY_MB}
"""


def _render_script(answer: str) -> str:
    return f"""#!/bin/bash
# A fault writes no reward file, so that Harbor reports an error and not a reward of 0.
exec python3 /tests/grade.py /tests/task.json {answer} /logs/verifier
"""
