"""The wheel with its base dependencies alone: everything ships, light commands stay light, the rest says why."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import Graded

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "trl", "transformers", "fastapi", "starlette", "uvicorn", "uvloop", "redis", "numpy", "opentelemetry")
PACKAGES = ("gradus", "services", "trainer", "corpus")


def run(*command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "GRADUS_REDIS_URL")
    }
    return subprocess.run(
        [*map(str, command)],
        env={**environment, **more.pop("env", {})},
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that holds the wheel and its base dependencies."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    made = run(sys.executable, "-m", "venv", "--without-pip", environment)
    assert made.returncode == 0, made.stderr
    done = run(sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install", "-q", wheel)
    if re.search("No matching distribution|Could not find a version|ConnectionError", done.stderr):
        pytest.skip(f"the base dependencies cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return environment / "bin"


def test_everything_that_is_no_cache_is_in_the_wheel(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    tracked = run("git", "-C", ROOT, "ls-files", *PACKAGES, "configs").stdout.splitlines()
    if not tracked:
        pytest.skip("this is no git checkout, so nothing says which files belong to it")
    there = [name for name in tracked if (ROOT / name).exists()]
    shipped = {f"gradus/{name}" if name.startswith("configs/") else name for name in there}
    assert shipped - inside == set()


def test_sources_of_ocaml_configs_cases_and_templates_are_in_the_wheel(wheel: Path) -> None:
    inside = "\n".join(zipfile.ZipFile(wheel).namelist())
    for pattern in (
        r"services/graders/ocaml/front/\w+\.ml",
        r"services/graders/ocaml/harness/gradus_harness\.ml",
        r"services/graders/ocaml/cases\.yaml",
        r"gradus/configs/graders/ocaml\.yaml",
        r"gradus/configs/tasks/ocaml\.jsonl",
        r"services/dashboard/page/index\.html",
        r"services/dashboard/page/app\.js",
        r"services/dashboard/page/page\.css",
    ):
        assert re.search(f"^{pattern}$", inside, re.M), pattern


def test_neither_tests_nor_caches_are_in_the_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.startswith("tests/") or "__pycache__" in name or name.endswith(".pyc")] == []
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


@pytest.mark.slow
def test_the_base_installation_has_nothing_heavy(installed: Path) -> None:
    script = f"import importlib.util as u; print([n for n in {HEAVY!r} if u.find_spec(n)])"
    assert run(installed / "python", "-I", "-c", script).stdout.strip() == "[]"


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    """In the environment of the tests, where all of it could be imported."""
    done = run(sys.executable, "-X", "importtime", "-m", "gradus", "--help", cwd=ROOT)
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "gradus.cli" in imported
    tops = {name.partition(".")[0] for name in imported}
    assert tops & {*HEAVY, "httpx", "pydantic"} == set()


@pytest.mark.slow
def test_help_takes_less_than_a_second_of_cpu(installed: Path) -> None:
    def cpu_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run(installed / "gradus", "--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu_s() for _ in range(3)) < 1.0


@pytest.mark.slow
def test_the_installed_command_grades_with_base_dependencies_alone(
    installed: Path, tmp_path: Path, ocaml_grader: object
) -> None:
    """`ocaml_grader` is asked for because it skips where there is no OCaml."""
    asked = {"id": "a", "completion": "let f x = x + 1", "task": {"tests": "let () = assert (f 1 = 2)"}}
    done = run(
        installed / "gradus",
        "grade",
        "ocaml",
        "-",
        input=json.dumps(asked),
        cwd=tmp_path,
        env={"GRADUS_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert Graded.model_validate_json(done.stdout).passed
    assert list(tmp_path.glob("ocaml-*")), "the compiler front is built from the sources in the wheel"


@pytest.mark.slow
def test_the_installed_command_finds_its_tasks(installed: Path, tmp_path: Path) -> None:
    script = "from gradus.resources import configs; print(configs())"
    folder = Path(run(installed / "python", "-I", "-c", script, cwd=tmp_path).stdout.strip())
    assert folder.is_relative_to(installed.parent)
    assert (folder / "tasks" / "ocaml.jsonl").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "extra"),
    [
        (("serve", "--port", "0"), "api"),
        (("worker", "ocaml", "--redis", "redis://127.0.0.1:9/0"), "api"),
        (("dashboard", "--port", "0"), "api"),
        (("eval", "model", "tasks.jsonl"), "train"),
    ],
)
def test_a_command_that_needs_more_says_which_extra_has_it(
    installed: Path, tmp_path: Path, argv: tuple[str, ...], extra: str
) -> None:
    done = run(installed / "gradus", *argv, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"pip install 'gradus[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
