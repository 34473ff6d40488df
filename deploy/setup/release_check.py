"""`make release-check`: places that state the version agree with `gradus/__init__.py`. Exit status
1 if not."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
TAG = "${GRADUS_TAG:-dev}"
"""What Compose takes for both the tag and the label of an image: a release is built with
GRADUS_TAG=VERSION."""
FOREIGN = ("redis", "prometheus")
"""Services whose images hold nothing of Gradus but settings."""


def version(root: Path) -> str:
    """The one source of the version."""
    [found] = re.findall(
        r'^__version__ = "(.+)"$', (root / "gradus" / "__init__.py").read_text(), re.MULTILINE
    )
    return str(found)


def text_problems(root: Path) -> Iterator[str]:
    """What is wrong in the files of a checkout."""
    release = version(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", release):
        yield f"gradus/__init__.py: {release} is no version of a release"
    if 'dynamic = ["version"]' not in (root / "pyproject.toml").read_text():
        yield "pyproject.toml: does not take the version from gradus/__init__.py"
    if (cited := str(yaml.safe_load((root / "CITATION.cff").read_text())["version"])) != release:
        yield f"CITATION.cff: {cited}, not {release}"
    released = re.findall(
        r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    if released[:1] != [release]:
        yield (
            f"CHANGELOG.md: the newest section is {(released or ['Unreleased'])[0]}, not {release}"
        )
    yield from image_problems(root)


def image_problems(root: Path) -> Iterator[str]:
    """Images of Compose whose tag and label could differ."""
    services = yaml.safe_load((root / "docker-compose.yml").read_text())["services"]
    for name, service in services.items():
        if not (build := service.get("build")) or name in FOREIGN:
            continue
        dockerfile = (root / build["dockerfile"]).read_text()
        if 'org.opencontainers.image.version="${VERSION}"' not in dockerfile:
            yield f"{build['dockerfile']}: has no label of the version"
        if build.get("args", {}).get("VERSION") != TAG or f":{TAG}" not in service["image"]:
            yield f"docker-compose.yml: {name}: tag and VERSION are not both {TAG}"


def package_problems(root: Path) -> Iterator[str]:
    """What is wrong with wheel and sdist, built here."""
    release = version(root)
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, str(root)]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        if done.returncode:
            yield f"wheel and sdist: {done.stderr.strip()[-500:]}"
            return
        wheel, sdist = (
            Path(folder, f"gradus_rl-{release}-py3-none-any.whl"),
            Path(folder, f"gradus_rl-{release}.tar.gz"),
        )
        if not wheel.exists() or not sdist.exists():
            yield (
                "wheel and sdist:"
                f" {', '.join(sorted(path.name for path in Path(folder).iterdir()))}, not {release}"
            )
            return
        with zipfile.ZipFile(wheel) as archive:
            metadata = archive.read(f"gradus_rl-{release}.dist-info/METADATA").decode()
            names = archive.namelist()
        with tarfile.open(sdist) as archive_of_sources:
            names += archive_of_sources.getnames()
    if f"\nVersion: {release}\n" not in metadata:
        yield f"wheel: its metadata is not of {release}"
    for wanted in (
        "dist-info/licenses/LICENSE",
        f"gradus_rl-{release}/LICENSE",
        f"gradus_rl-{release}/CHANGELOG.md",
    ):
        if not any(name.endswith(wanted) for name in names):
            yield f"wheel and sdist: {wanted} is missing"


def main() -> int:
    found = [*text_problems(ROOT), *package_problems(ROOT)]
    print(
        "\n".join(found)
        or f"gradus {version(ROOT)}: wheel, sdist, images, citation and changelog agree"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
