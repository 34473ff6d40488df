"""Where new weights lie for a server to fetch them: a folder that it can read, or a small web server of ours.

Writes whole files under new names and renames them into place, so that nobody reads half of one. Talks to no vLLM.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Iterable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file

from gradus.errors import Misuse

KEPT = 2
"""Versions that stay: the one in use and the one before."""


class Channel(Protocol):
    """How a file of weights gets to the server."""

    def info(self, file: Path) -> dict[str, str]:
        """What the server is told."""
        ...


class SharedFolder:
    """The server reads the file itself, under the same path."""

    def info(self, file: Path) -> dict[str, str]:
        return {"path": str(file.resolve())}


class OverHttp:
    """The server fetches the file from `host:port` of ours, below a path that only it is told."""

    def __init__(self, address: str, folder: Path) -> None:
        host, _, port = address.rpartition(":")
        self._secret = secrets.token_urlsafe(16)
        handler = partial(_OneFolder, folder=folder, secret=self._secret)
        try:
            self._server = ThreadingHTTPServer((host, int(port)), handler)
        except (OSError, ValueError, OverflowError) as error:
            raise Misuse(f"generation.serve_weights_at: {address!r}: {error}; write host:port") from None
        self.address = f"{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="weights", daemon=True).start()

    def info(self, file: Path) -> dict[str, str]:
        return {"url": f"http://{self.address}/{self._secret}/{file.name}"}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _OneFolder(SimpleHTTPRequestHandler):
    """Files of one folder, by their bare names, for those who know the secret."""

    def __init__(self, *arguments: Any, folder: Path, secret: str) -> None:
        self._secret = secret
        super().__init__(*arguments, directory=str(folder))

    def send_head(self) -> Any:
        _, _, rest = self.path.partition("/")
        secret, _, name = rest.partition("/")
        if not secrets.compare_digest(secret.encode(), self._secret.encode()) or "/" in name or not name:
            self.send_error(404)
            return None
        self.path = f"/{name}"
        return super().send_head()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the trainer says itself what it sends."""


def write_weights(folder: Path, name: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> Path:
    """All of `tensors` as `<name>.safetensors`; older versions but the last go."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.safetensors"
    half = target.with_suffix(".partial")
    # a copy of each: tied weights are one tensor under two names, which the format refuses
    save_file({key: tensor.detach().to("cpu", copy=True).contiguous() for key, tensor in tensors}, half)
    half.chmod(0o644)  # the server may be another user's
    half.rename(target)
    _forget(sorted(folder.glob("*.safetensors"), key=_age))
    return target


def write_adapter(folder: Path, name: str, model: Any) -> Path:
    """The LoRA adapter of `model` as a folder `<name>`; older versions but the last go."""
    target = folder / name
    half = folder / f"{name}.partial"
    shutil.rmtree(half, ignore_errors=True)
    model.save_pretrained(str(half))
    half.rename(target)
    _forget(sorted((path.parent for path in folder.glob("*/adapter_config.json")), key=_age))
    return target


def _age(path: Path) -> int:
    return path.stat().st_mtime_ns


def _forget(oldest_first: list[Path]) -> None:
    for path in oldest_first[:-KEPT]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
