"""`make release-check` notices every place whose version differs."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy.setup.base_images import FILE, build_url, lock_base_images, read_base_images
from deploy.setup.release_check import find_problems, read_version

ROOT = Path(__file__).parents[2]
FILES = (
    "gradus/__init__.py",
    "CITATION.cff",
    "CHANGELOG.md",
    "deploy/helm/gradus/Chart.yaml",
    "docker-compose.yml",
    "requirements.lock",
    FILE,
)
MANIFEST = b'{"schemaVersion": 2}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


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
    images = read_base_images(tmp_path)
    lines = []
    for name, image in images.items():
        lines.append(f"{name}={image.partition('@')[0]}@{DIGEST}\n")
    (tmp_path / FILE).write_text("".join(lines))
    return tmp_path


class RegistryHandler(BaseHTTPRequestHandler):
    """The two routes of a registry that reading a manifest takes."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        has_token = self.headers.get("Authorization") == "Bearer t"
        bodies = {"/token": json.dumps({"token": "t"}).encode()}
        status = 401
        if has_token:
            bodies["/v2/debian/manifests/12"] = MANIFEST
            status = 404
        self.send_response(200 if path in bodies else status)
        realm = f"http://{self.headers['Host']}/token"
        self.send_header("WWW-Authenticate", f'Bearer realm="{realm}",scope="repository:x:pull"')
        self.end_headers()
        self.wfile.write(bodies.get(path, b""))

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), RegistryHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_digests_come_from_the_registry(tmp_path: Path, registry: str) -> None:
    file = tmp_path / FILE
    file.parent.mkdir(parents=True)
    for digest in ("", "@sha256:old"):
        file.write_text(f"# a comment\nBASE_IMAGE={registry}/debian:12{digest}\n")
        lock_base_images(tmp_path)
        assert file.read_text() == f"# a comment\nBASE_IMAGE={registry}/debian:12@{DIGEST}\n"
    file.write_text(text := f"A={registry}/debian:12\nB={registry}/debian:none\n")
    with pytest.raises(OSError, match="404"):
        lock_base_images(tmp_path)
    assert file.read_text() == text


def test_images_of_docker_hub_are_found_by_their_short_names() -> None:
    assert build_url("debian:12") == "https://registry-1.docker.io/v2/library/debian/manifests/12"
    assert build_url("a/b:c") == "https://registry-1.docker.io/v2/a/b/manifests/c"
    assert build_url("quay.io/a:b") == "https://quay.io/v2/a/manifests/b"


def test_a_release_needs_the_digests_of_its_base_images(checkout: Path) -> None:
    file = checkout / FILE
    file.write_text(file.read_text().replace(f"slim@{DIGEST}", "slim").replace("v0.32", "v0.33"))
    problems = list(find_problems(checkout))
    assert len(problems) == 2
    assert "BASE_IMAGE has no digest" in problems[0]
    assert f"vllm/vllm-openai:v0.32.0 is not in {FILE}" in problems[1]


@pytest.mark.parametrize(
    ("lock", "name"), [("torch", "torch"), ("story", "numpy"), ("api", "fastapi")]
)
def test_a_release_needs_the_hashes_of_what_its_images_install(
    checkout: Path, lock: str, name: str
) -> None:
    file = checkout / f"deploy/docker/locks/{lock}.lock"
    entry = re.compile(rf"^({name}==\S+).*(?:\n +--hash.*)+", re.MULTILINE)
    file.write_text(entry.sub(r"\1", file.read_text()))
    problem = f"deploy/docker/locks/{lock}.lock: {name} has no hash: `make lock-images`"
    assert list(find_problems(checkout)) == [problem]


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
