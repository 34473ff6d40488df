"""`make release-check` notices every place whose version differs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.setup.release_check import package_problems, text_problems, version

ROOT = Path(__file__).parents[2]
FILES = (
    "gradus/__init__.py",
    "pyproject.toml",
    "CITATION.cff",
    "CHANGELOG.md",
    "docker-compose.yml",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the files that state the version, with a changelog that is cut."""
    for name in (
        *FILES,
        *(f"deploy/docker/{path.name}" for path in (ROOT / "deploy/docker").glob("*.Dockerfile")),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{version(ROOT)}] - 2026-11-23\n")
    return tmp_path


def test_a_checkout_that_agrees_has_no_problems(checkout: Path) -> None:
    assert list(text_problems(checkout)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("gradus/__init__.py", '"0', '"dev0', "is no version of a release"),
        ("gradus/__init__.py", '"0', '"10', "CITATION.cff: "),
        ("CHANGELOG.md", "## [0", "## [10", "CHANGELOG.md: the newest section is 10"),
        ("CHANGELOG.md", "## [", "## [Unreleased] was [", "is Unreleased, not"),
        (
            "pyproject.toml",
            'dynamic = ["version"]',
            'version = "0.1.0"',
            "pyproject.toml: does not take",
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
    assert any(problem in found for found in text_problems(checkout))


def test_wheel_and_sdist_have_the_version_and_the_licence() -> None:
    assert list(package_problems(ROOT)) == []
