"""`make release-check` notices every place whose version differs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from deploy.setup.release_check import find_problems, read_version

ROOT = Path(__file__).parents[2]
FILES = (
    "gradus/__init__.py",
    "CITATION.cff",
    "CHANGELOG.md",
    "deploy/helm/gradus/Chart.yaml",
    "docker-compose.yml",
    "requirements.lock",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the files that state the version, with a changelog that is cut."""
    for name in (
        *FILES,
        *(f"deploy/docker/{path.name}" for path in (ROOT / "deploy/docker").glob("*.Dockerfile")),
        *(f"deploy/docker/locks/{path.name}" for path in (ROOT / "deploy/docker/locks").iterdir()),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## [{read_version(ROOT)}] - 2026-11-23\n"
    )
    return tmp_path


def test_a_checkout_that_agrees_has_no_problems(checkout: Path) -> None:
    assert list(find_problems(checkout)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("gradus/__init__.py", '"0', '"dev0', "is no version of a release"),
        ("gradus/__init__.py", '"0', '"10', "CITATION.cff: "),
        ("deploy/helm/gradus/Chart.yaml", "version: 0", "version: 10", "Chart.yaml: 10"),
        ("CHANGELOG.md", "## [0", "## [10", "CHANGELOG.md: the newest section is not 0"),
        (
            "CHANGELOG.md",
            "## [",
            "## [Unreleased] was [",
            "CHANGELOG.md: the newest section is not 0",
        ),
        (
            "docker-compose.yml",
            "gradus-api:${GRADUS_TAG:-dev}",
            "gradus-api:1",
            "docker-compose.yml: api: tag",
        ),
        (
            "deploy/docker/api.Dockerfile",
            "image.version",
            "image.revision",
            "has no label of the version",
        ),
    ],
)
def test_a_place_that_differs_is_named(
    checkout: Path, file: str, old: str, new: str, problem: str
) -> None:
    text = (checkout / file).read_text()
    assert old in text
    (checkout / file).write_text(text.replace(old, new))
    assert any(problem in found for found in find_problems(checkout))


def test_a_package_of_an_image_in_another_version_is_a_problem(checkout: Path) -> None:
    lock = checkout / "deploy/docker/locks/worker.lock"
    text = re.sub(r"^redis==\S+", "redis==0.1", lock.read_text(), flags=re.MULTILINE)
    lock.write_text(text)
    assert list(find_problems(checkout)) == [
        "deploy/docker/locks/worker.lock: redis==0.1 is not in requirements.lock:"
        " `make lock-images`"
    ]
