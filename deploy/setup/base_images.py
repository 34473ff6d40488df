"""`make lock-images`: digests of the base images in deploy/docker/base_images.env, from their
registries (OCI distribution, `GET /v2/NAME/manifests/TAG`)."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

FILE = "deploy/docker/base_images.env"
TIMEOUT_S = 30
DOCKER_HUB = "registry-1.docker.io"
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
"""Lists of platforms first: their digest fits every machine."""


def read_base_images(root: Path) -> dict[str, str]:
    """Return the images of a checkout by argument, as `NAME:TAG` or `NAME:TAG@DIGEST`."""
    text = (root / FILE).read_text()
    return dict(re.findall(r"^(\w+)=(\S+)$", text, re.MULTILINE))


def build_url(image: str) -> str:
    """Return the URL of the manifest of `NAME:TAG`. A registry on this machine speaks HTTP."""
    name, _, tag = image.rpartition(":")
    host, _, path = name.partition("/")
    if "." not in host and ":" not in host:
        host = DOCKER_HUB
        path = name if "/" in name else f"library/{name}"
    scheme = "http" if host.startswith("127.0.0.1:") else "https"
    return f"{scheme}://{host}/v2/{path}/manifests/{tag}"


def fetch_digest(image: str) -> str:
    """Return the digest of `NAME:TAG`. Raises OSError where the registry does not give it."""
    request = Request(build_url(image), headers={"Accept": MANIFESTS})
    try:
        manifest = _fetch(request)
    except HTTPError as error:
        if error.code != 401:
            raise
        token = _fetch_token(error.headers["WWW-Authenticate"])
        request.add_header("Authorization", f"Bearer {token}")
        manifest = _fetch(request)
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def _fetch(request: Request | str) -> bytes:
    with urlopen(request, timeout=TIMEOUT_S) as response:
        body: bytes = response.read()
    return body


def _fetch_token(challenge: str) -> str:
    """Return a token for anonymous reading, from where `WWW-Authenticate` says."""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = fields.pop("realm")
    token: str = json.loads(_fetch(f"{realm}?{urlencode(fields)}"))["token"]
    return token


def lock_base_images(root: Path) -> None:
    """Write the digest of each image into the file. Raises OSError, and writes nothing, where one
    cannot be had."""
    text = (root / FILE).read_text()
    for name, image in read_base_images(root).items():
        tagged = image.partition("@")[0]
        text = text.replace(f"{name}={image}\n", f"{name}={tagged}@{fetch_digest(tagged)}\n")
    (root / FILE).write_text(text)


def main() -> int:
    """Lock the base images of this checkout; return the exit status."""
    try:
        lock_base_images(Path(__file__).parents[2])
    except OSError as error:
        print(f"{FILE}: not changed, a registry cannot be reached: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
