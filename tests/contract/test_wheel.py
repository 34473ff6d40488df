"""The wheel has the SDK alone; a checkout with base dependencies alone says why other commands need
more."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import threading
import venv
import zipfile
from collections.abc import Iterator, Mapping
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from gradus import __version__
from gradus.contract import Graded
from tests.fake_grader import Service

ROOT = Path(__file__).parents[2]
HEAVY = (
    "torch",
    "trl",
    "transformers",
    "fastapi",
    "starlette",
    "uvicorn",
    "uvloop",
    "redis",
    "numpy",
    "opentelemetry",
)
WINGS = ["corpus", "services", "trainer"]


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
    """The wheel, built from the source distribution as for a release."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that holds the wheel and sees the dependencies of the tests'
    environment."""
    environment = tmp_path_factory.mktemp("alone") / "environment"
    venv.create(environment, symlinks=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        environment / "bin" / "python",
        "--disable-pip-version-check",
    ]
    done = run(*pip, "install", "-q", "--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stderr
    (packages,) = environment.glob("lib/python*/site-packages")
    # its own `.pth` files are not read there, so that the checkout is not seen
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return environment / "bin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that holds the checkout and its base dependencies, as `pip
    install -e .` makes it."""
    folder = tmp_path_factory.mktemp("installed")
    build = f"from hatchling.build import build_editable; build_editable({str(folder)!r})"
    made = run(sys.executable, "-c", build, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    [wheel] = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    done = run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        environment / "bin" / "python",
        "install",
        "-q",
        wheel,
    )
    if re.search("No matching distribution|Could not find a version|ConnectionError", done.stderr):
        pytest.skip(
            "the base dependencies cannot be installed here:"
            f" {done.stderr.strip().splitlines()[-1]}"
        )
    assert done.returncode == 0, done.stderr
    return environment / "bin"


def test_the_wheel_is_the_sdk(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in inside} == {"gradus"}
    assert [name for name in inside if "__pycache__" in name or name.endswith(".pyc")] == []
    tracked = run("git", "-C", ROOT, "ls-files", "gradus").stdout.splitlines()
    if not tracked:
        pytest.skip("this is no git checkout, so nothing says which files belong to it")
    assert inside == {name for name in tracked if (ROOT / name).exists()}


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    about = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    assert about.startswith(f"gradus_rl-{__version__}.dist-info/")
    metadata = message_from_bytes(archive.read(about))
    assert (metadata["Name"], metadata["Version"]) == ("gradus-rl", __version__)
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    names = archive.namelist()
    assert "gradus/py.typed" in names
    assert [name for name in names if name.endswith("/LICENSE")]


def test_no_line_installs_the_other_project_of_that_name() -> None:
    """`gradus` on PyPI is not ours."""
    wrong = re.compile(r"pip install (?:[^|`;#\n]*[ '\"])?gradus(?!-rl)(?=[\[\s'\"`=<>~]|$)")
    assert wrong.search("pip install 'gradus[api]'")
    assert wrong.search("run `pip install -U gradus`")
    files = run(
        "git", "-C", ROOT, "ls-files", "*.md", "*.py", "*.ipynb", "*.toml", "*.y*ml", "Makefile"
    ).stdout
    if not files:
        pytest.skip("this is no git checkout, so nothing says which files belong to it")
    told = [ROOT / name for name in files.splitlines() if not name.startswith("tests/")]
    assert [str(path) for path in told if path.exists() and wrong.search(path.read_text())] == []


def test_the_command_tells_its_version_and_completes_words(alone: Path, tmp_path: Path) -> None:
    assert run(alone / "gradus", "--version", cwd=tmp_path).stdout == f"gradus {__version__}\n"
    asked = {"_GRADUS_COMPLETE": "complete_bash", "COMP_WORDS": "gradus doc", "COMP_CWORD": "1"}
    assert run(alone / "gradus", cwd=tmp_path, env=asked).stdout.split() == ["doctor"]


def test_folders_with_the_wings_names_change_nothing(alone: Path, tmp_path: Path) -> None:
    for wing in WINGS:
        (tmp_path / wing).mkdir()
        (tmp_path / wing / "__init__.py").write_text("raise SystemExit('imported')")
        (tmp_path / wing / "commands.py").write_text(
            "def register(app): raise SystemExit('registered')"
        )
    command = [alone / "python", "-m", "gradus"]
    for words in (["--help"], ["doctor"]):
        done = run(*command, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr + done.stdout
    assert "No such command 'serve'" in run(*command, "serve", cwd=tmp_path).stderr


def test_the_sdk_works_where_no_wing_is_installed(alone: Path, tmp_path: Path) -> None:
    script = (
        "import gradus.client, gradus.descriptions, gradus.wings\n"
        f"assert gradus.client.__file__.startswith({str(alone.parent)!r}), gradus.client.__file__\n"
        "assert gradus.descriptions.grader_named('rust') == 'rust'\n"
    )
    done = run(alone / "python", "-I", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (packages,) = alone.parent.glob("lib/python*/site-packages")
    assert [wing for wing in WINGS if (packages / wing).exists()] == []
    shown = run(alone / "gradus", "--help", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "doctor" in shown.stdout
    looked = run(alone / "gradus", "doctor", cwd=tmp_path)
    assert looked.returncode == 0, looked.stderr
    for what in ("machine", "CPU", "memory"):
        assert f" {what}: " in looked.stdout


GRADE_SHIPPED_TASKS = """
import json, sys
from gradus_envs import find_tasks, iter_nemo_gym_rows
from gradus.integrations.core import Completion, grade_blocking, settings
from gradus.row_reader import read_rows

tasks = [row["verifier_metadata"]["task"] for row in iter_nemo_gym_rows("ocaml")]
texts = [row.values["solution"] for row in read_rows(find_tasks("ocaml"))]
batch = [Completion(task, text) for task, text in zip(tasks[:3], texts)]
results = grade_blocking([*batch, Completion(tasks[0], "")], settings("ocaml", url=sys.argv[1]))
print(json.dumps([result.reward for result in results]))
"""


@pytest.fixture(scope="module")
def with_envs(alone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`alone`, with the wheel of the shipped tasks."""
    folder = tmp_path_factory.mktemp("envs")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder]
    built = run(*build, ROOT / "envs")
    assert built.returncode == 0, built.stdout + built.stderr
    pip = [sys.executable, "-m", "pip", "--python", alone / "python"]
    done = run(*pip, "install", "-q", "--no-deps", "--no-index", *folder.glob("*.whl"))
    assert done.returncode == 0, done.stderr
    return alone


@pytest.fixture(scope="module")
def served(ocaml_grader: object) -> Iterator[str]:
    """The URL of a service with the real OCaml grader; the fixture skips where there is none."""
    command = [sys.executable, "-m", "gradus", "serve", "--port", "0", "--graders", "ocaml"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"serving on (\S+)", line):
                    break
            else:
                pytest.fail("".join(lines[-5:]))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[1]
        finally:
            process.terminate()


def test_the_wheel_of_tasks_grades_from_an_empty_folder(
    with_envs: Path, served: str, tmp_path: Path
) -> None:
    """The way of a person without a checkout: two wheels and the URL of a service."""
    graded = run(with_envs / "python", "-I", "-c", GRADE_SHIPPED_TASKS, served, cwd=tmp_path)
    assert graded.returncode == 0, graded.stderr
    assert json.loads(graded.stdout) == [1.0, 1.0, 1.0, 0.0]


def test_the_wheel_of_tasks_writes_rows_for_nemo_gym(with_envs: Path, tmp_path: Path) -> None:
    path = Path(run(with_envs / "gradus-envs", "path", "story", cwd=tmp_path).stdout.strip())
    for file in path.parent.iterdir():
        assert file.read_bytes() == (ROOT / "configs" / "tasks" / file.name).read_bytes()
    written = run(with_envs / "gradus-envs", "rows", "story", "--ids", cwd=tmp_path).stdout
    shipped = [json.loads(line) for line in path.read_text().splitlines()]
    for line, row in zip(written.splitlines(), shipped, strict=True):
        found = json.loads(line)
        assert found["verifier_metadata"] == {"task": row["id"]}
        [message] = found["responses_create_params"]["input"]
        assert message["content"] == row["prompt"]
    refused = run(with_envs / "gradus-envs", "rows", "cobol", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "gradus-envs: there are no tasks for 'cobol': use ocaml, rust, story\n"


def interpreter(version: str) -> Path | None:
    """A Python of this version, on the PATH or of pyenv."""
    found = [
        shutil.which(f"python{version}"),
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
    ]
    return next((Path(one) for one in found if one and run(one, "-c", "").returncode == 0), None)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_wheel_grades_with_each_python(wheel: Path, tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    assert run(python, "-m", "venv", tmp_path / "environment").returncode == 0
    programs = tmp_path / "environment" / "bin"
    done = run(
        programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q", wheel
    )
    if re.search("No matching distribution|Could not find a version|ConnectionError", done.stderr):
        pytest.skip(
            "the base dependencies cannot be installed here:"
            f" {done.stderr.strip().splitlines()[-1]}"
        )
    assert done.returncode == 0, done.stderr
    assert run(programs / "gradus", "--version").stdout == f"gradus {__version__}\n"
    script = (
        "import asyncio, sys\nfrom gradus.client import RewardClient\nfrom gradus.integrations.core"
        " import Completion, grade_blocking, settings\nurl, given = sys.argv[1], {'id': 'a',"
        " 'completion': 'reward 0.25', 'task': {'tests': 'x'}}\n[batch] ="
        " asyncio.run(RewardClient(url).grade('ocaml', [given]))\n[single] ="
        " grade_blocking([Completion(given['task'], 'reward 0.5')], settings('ocaml',"
        " url=url))\nprint(batch.reward, single.reward, '%d.%d' % sys.version_info[:2])\n"
    )
    with Service().running() as service:
        done = run(
            programs / "python", "-I", "-W", "error", "-c", script, service.url, cwd=tmp_path
        )
    assert done.stdout.split() == ["0.25", "0.5", version], done.stderr


@pytest.mark.slow
def test_the_base_installation_has_nothing_heavy(installed: Path) -> None:
    script = f"import importlib.util as u; print([n for n in {HEAVY!r} if u.find_spec(n)])"
    assert run(installed / "python", "-I", "-c", script).stdout.strip() == "[]"


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    """In the environment of the tests, where all of it could be imported."""
    done = run(sys.executable, "-X", "importtime", "-m", "gradus", "--help", cwd=ROOT)
    assert done.returncode == 0
    imported = {
        line.rpartition("|")[2].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
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
    asked = {
        "id": "a",
        "completion": "let f x = x + 1",
        "task": {"tests": "let () = assert (f 1 = 2)"},
    }
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
    assert list(tmp_path.glob("ocaml-*")), "the compiler front is built from its sources"


@pytest.mark.slow
def test_the_installed_command_finds_its_tasks(installed: Path, tmp_path: Path) -> None:
    script = "from gradus.resources import configs; print(configs())"
    folder = Path(run(installed / "python", "-I", "-c", script, cwd=tmp_path).stdout.strip())
    assert folder == ROOT / "configs"
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
    assert f"pip install 'gradus-rl[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
