"""A grader's revision changes with every file that can change its verdicts, and with no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from services.graders.base.revision import collect_closure, compute_revision
from tests.graders import GRADERS, class_of

ROOT = Path(__file__).parents[2]
ALL = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "ocaml" else pytest.mark.slow) for name in GRADERS],
)


def home(name: str) -> str:
    return class_of(name).__module__


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, whose files tests may change."""
    root = tmp_path_factory.mktemp("tree")
    for package in ("gradus", "services"):
        shutil.copytree(
            ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return root


def changed(path: Path, name: str, root: Path) -> str:
    """The revision while `path` has one more line."""
    before = path.read_bytes()
    path.write_bytes(before + b"\n# another\n")
    try:
        return compute_revision(home(name), root=root)
    finally:
        path.write_bytes(before)


@ALL
def test_a_copy_has_the_same_revision_wherever_it_lies(name: str, tree: Path) -> None:
    assert (
        compute_revision(home(name), root=tree)
        == compute_revision(home(name))
        == compute_revision(home(name), root=ROOT)
    )


@ALL
def test_a_change_of_any_file_behind_a_verdict_is_another_revision(name: str, tree: Path) -> None:
    files = collect_closure(home(name), tree)
    revisions = {path: changed(file, name, tree) for path, file in files.items()}
    assert compute_revision(home(name), root=tree) not in revisions.values()
    assert len(set(revisions.values())) == len(files)


@ALL
def test_the_closure_holds_the_folder_and_what_it_imports_and_nothing_that_only_carries_jobs(
    name: str,
) -> None:
    files = collect_closure(home(name))
    own = ROOT / "services" / "graders" / name
    kept = {path for path in own.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {str(path.relative_to(ROOT)) for path in kept} <= set(files)
    assert {
        "gradus/contract.py",
        f"gradus/tasks/{name}.py",
        "services/graders/base/grader.py",
    } <= set(files)
    carriers = (
        "services/api/",
        "services/broker/",
        "services/worker",
        "services/dashboard/",
        "trainer/",
    )
    assert not [path for path in files if path.startswith(carriers)]
    others = tuple(f"services/graders/{other}/" for other in GRADERS if other != name)
    assert not [path for path in files if path.startswith(others)]


@pytest.mark.parametrize("name", ["ocaml", "rust"])
def test_graders_of_code_depend_on_the_sandbox_and_on_how_answers_are_read(name: str) -> None:
    shared = (
        "sandbox/bubblewrap.py",
        "sandbox/seccomp.py",
        "degenerate.py",
        "graders/base/code.py",
    )
    assert {"gradus/extract.py", *(f"services/{path}" for path in shared)} <= set(
        collect_closure(home(name))
    )


@pytest.mark.parametrize(
    "path", ["services/api/app.py", "services/worker.py", "services/broker/memory.py"]
)
def test_a_change_elsewhere_is_the_same_revision(path: str, tree: Path) -> None:
    assert changed(tree / path, "ocaml", tree) == compute_revision(home("ocaml"), root=tree)


def test_settings_count_and_stay_apart() -> None:
    given = (("a", "b"), ("b", "a"), ("ab",), ())
    assert len({compute_revision(home("story"), *settings) for settings in given}) == 4


def test_a_grader_of_another_package_depends_on_its_package_and_on_imports_inside_functions(
    tree: Path,
) -> None:
    package = tree / "plugged"
    package.mkdir()
    for file, text in {
        "__init__.py": "",
        "grader.py": (
            "def grade():\n    from plugged import helping\n    import gradus.extract\n    import"
            " json\n"
        ),
        "helping.py": "from . import deeper\n",
        "deeper.py": "",
        "cases.yaml": "[]",
    }.items():
        (package / file).write_text(text)
    assert {*collect_closure("plugged.grader", tree)} >= {
        *(
            f"plugged/{file}"
            for file in ("__init__.py", "grader.py", "helping.py", "deeper.py", "cases.yaml")
        ),
        "gradus/extract.py",
    }
