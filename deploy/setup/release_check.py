"""`make release-check`: citation, chart, changelog and images have the version of
`gradus/__init__.py`, from which wheel and sdist take theirs. Exit status 1 if not."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from deploy.setup.base_images import FILE, read_base_images

ROOT = Path(__file__).parents[2]
TAG = "${GRADUS_TAG:-dev}"
"""What Compose takes for both the tag and the label of an image: a release is built with
GRADUS_TAG=VERSION."""
FOREIGN = ("redis", "prometheus")
"""Services whose images hold nothing of Gradus but settings."""


def read_version(root: Path) -> str:
    """Return the one source of the version."""
    text = (root / "gradus/__init__.py").read_text()
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def find_problems(root: Path) -> Iterator[str]:
    """Yield a line for each file of a checkout that states another version."""
    version = read_version(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        yield f"gradus/__init__.py: {version} is no version of a release"
    cited = yaml.safe_load((root / "CITATION.cff").read_text())["version"]
    if cited != version:
        yield f"CITATION.cff: {cited}, not {version}"
    chart = yaml.safe_load((root / "deploy/helm/gradus/Chart.yaml").read_text())["version"]
    if chart != version:
        yield f"deploy/helm/gradus/Chart.yaml: {chart}, not {version}"
    newest = re.search(r"^## \[(.+)\]", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if newest is None or newest[1] != version:
        yield f"CHANGELOG.md: the newest section is not {version}"
    compose = yaml.safe_load((root / "docker-compose.yml").read_text())
    for name, service in compose["services"].items():
        build = service.get("build")
        if build is None or name in FOREIGN:
            continue
        label = 'org.opencontainers.image.version="${VERSION}"'
        if label not in (root / build["dockerfile"]).read_text():
            yield f"{build['dockerfile']}: has no label of the version"
        if build["args"].get("VERSION") != TAG or not service["image"].endswith(f":{TAG}"):
            yield f"docker-compose.yml: {name}: tag and VERSION are not both {TAG}"

    yield from find_other_versions(root)
    yield from find_other_base_images(root)
    yield from find_missing_hashes(root)


def find_other_base_images(root: Path) -> Iterator[str]:
    """Yield a line for each base image without a digest, and for each that a Dockerfile takes in
    another version."""
    images = read_base_images(root)
    for name, image in images.items():
        if not re.search(r"@sha256:[0-9a-f]{64}$", image):
            yield f"{FILE}: {name} has no digest: `make lock-images`"
    tagged = {image.partition("@")[0] for image in images.values()}
    for file in sorted((root / "deploy/docker").glob("*.Dockerfile")):
        for image in re.findall(r"^ARG \w+_IMAGE=(\S+)$", file.read_text(), re.MULTILINE):
            if image not in tagged:
                yield f"{file.relative_to(root)}: {image} is not in {FILE}"


def find_missing_hashes(root: Path) -> Iterator[str]:
    """Yield a line for each lock file of an image with a package that has no hash."""
    for lock in sorted((root / "deploy/docker/locks").glob("*.lock")):
        for entry in re.split(r"^(?=[\w.\-]+==)", lock.read_text(), flags=re.MULTILINE):
            name = entry.partition("==")[0].strip()
            if name and not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry):
                yield f"{lock.relative_to(root)}: {name} has no hash: `make lock-images`"


def read_pins(file: Path) -> set[str]:
    """Return each `NAME==VERSION` of a lock file, without build, marker and hashes, its name as
    indexes write it."""
    pins = re.findall(r"^([\w.\-]+)==([^\s;+]+)", file.read_text(), re.MULTILINE)
    return {f"{re.sub('[-_.]+', '-', name).lower()}=={version}" for name, version in pins}


def find_other_versions(root: Path) -> Iterator[str]:
    """Yield a line for each package of an image that is not in the version of requirements.lock."""
    pins = read_pins(root / "requirements.lock")
    for lock in sorted((root / "deploy/docker/locks").glob("*.lock")):
        name = lock.relative_to(root)
        for pin in sorted(read_pins(lock) - pins):
            if pin.startswith("setuptools=="):  # `pip freeze` leaves it out
                continue
            yield f"{name}: {pin} is not in requirements.lock: `make lock-images`"


def main() -> int:
    """Print the problems; return the exit status."""
    problems = list(find_problems(ROOT))
    print("\n".join(problems) or f"gradus {read_version(ROOT)}: all places agree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
