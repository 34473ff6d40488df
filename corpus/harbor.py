"""Export of tasks as folders of Harbor (format 1.4): instruction, environment, separate verifier;
and import of such folders.

The hidden tests stand in `tests/`, which Harbor uploads to the verifier's container only. That
container has no network and runs an image that is named by digest and holds Gradus.

A folder is imported if exporting its task again gives the same files: then its verifier's script is
known to do what the grader does. What any other script does is not known without its container.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpus.drafts import Unusable
from gradus.errors import Misuse
from gradus.row_reader import Row
from gradus.strict_json import parse_strict_json

SUFFIXES = {"ocaml": "ml", "rust": "rs", "story": "md"}
"""Ending of the answer's file, by grader; `txt` for others."""
VERIFIER_TIMEOUT_S = 300
VERIFIER_MEMORY_MB = 2048
PINNED = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
DELIMITER = "GRADUS_SOLUTION"
MAX_FOLDER_BYTES = 16 << 20
_WHERE_TO_WRITE = "\n\nWrite the whole answer to `{answer}`.\n"
_SOLUTION_START = f"<<'{DELIMITER}'\n"
_SOLUTION_END = f"\n{DELIMITER}\n"


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
            "instruction.md": row.text("prompt") + _WHERE_TO_WRITE.format(answer=answer),
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


def read_folders(path: Path) -> tuple[list[Row], str]:
    """Return a row for each folder of a task in `path`, or for `path` itself, and their grader.

    A row has a problem where the folder is not as `build_folders` writes it, or is of another
    grader than the first. Raises Misuse where there is no folder of a task.
    """
    folders = sorted(file.parent for file in [*path.glob("task.toml"), *path.glob("*/task.toml")])
    if not folders:
        raise Misuse(f"{path}: holds no folder with a task.toml")
    rows = []
    graders: list[str] = []
    for folder in folders:
        values: dict[str, Any] = {"id": folder.name}
        problem = None
        try:
            grader, values = _read_folder(folder)
            graders.append(grader)
            if grader != graders[0]:
                raise Unusable(f"is of the grader {grader}, unlike others, of {graders[0]}")
        except Unusable as error:
            problem = str(error)
        rows.append(Row(str(folder), values, problem))
    return rows, graders[0] if graders else "ocaml"


def _read_folder(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the grader and the row of a folder. Raises Unusable unless an export of the row is
    this folder, file by file."""
    files = _read_files(folder)
    try:
        configuration = tomllib.loads(files["task.toml"])
        verifier_image = str(configuration["verifier"]["environment"]["docker_image"])
        environment_image = files["environment/Dockerfile"].split()[1]
        packed = parse_strict_json(files["tests/task.json"])
        grader = str(packed["grader"])
        task = dict(packed["task"])
        [answer] = configuration["artifacts"]
    except (KeyError, ValueError, TypeError, IndexError):
        raise Unusable(
            "is no export of Gradus: a reward by another script is known in its own container alone"
        ) from None
    prompt = files.get("instruction.md", "").removesuffix(_WHERE_TO_WRITE.format(answer=answer))
    values = {"id": folder.name, "prompt": prompt, **task}
    _, is_solved, script = files.get("solution/solve.sh", "").partition(_SOLUTION_START)
    if is_solved:
        values["solution"] = script.removesuffix(_SOLUTION_END) + "\n"
    row = Row(str(folder), values)
    try:
        [exported] = build_folders(
            [row], [task], grader, verifier_image, environment_image
        ).values()
    except Misuse as misuse:
        raise Unusable(str(misuse)) from None
    differing = [name for name in {**exported, **files} if exported.get(name) != files.get(name)]
    if differing:
        raise Unusable(f"{differing[0]}: is not as this version of Gradus exports it")
    return grader, values


def _read_files(folder: Path) -> dict[str, str]:
    """Return the texts of a folder's files by relative path. Raises Unusable for links, what is no
    text, and more than `MAX_FOLDER_BYTES`."""
    files = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise Unusable(f"{name}: is a link")
        if path.is_dir():
            continue
        size += path.stat().st_size
        if size > MAX_FOLDER_BYTES:
            raise Unusable(f"holds more than {MAX_FOLDER_BYTES >> 20} MiB")
        try:
            files[name] = path.read_bytes().decode()
        except ValueError:
            raise Unusable(f"{name}: is no text in UTF-8") from None
    return files


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
