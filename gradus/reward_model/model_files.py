"""The files of a reward model: where they are, whether a trained head is among them, what they are
by hash.

Reads names and bytes and loads no model. Weights are safetensors and nothing else: the other
formats can hold code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradus.errors import Misuse

HEADS = ("score", "classifier", "classification_head")  # names of it in architectures
NO_HEAD = "has no trained head, so its scores would be random"
ADAPTER = "adapter_config.json"
# What a model is made of: weights, settings, tokenizer, chat template.
_MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
# What a run leaves beside a model and no score depends on.
_ASIDE = ("trainer_state.json", "environment.json", "config.resolved.json")


def build_model_misuse(name: object, why: str) -> Misuse:
    return Misuse(f"{name}: {why}. Train one with: gradus train reward")


def resolve_model_folder(name: str) -> Path:
    """Return the folder of a model: `name` itself, or the hub's snapshot of `name`. Raises Misuse
    when there is neither."""
    if Path(name).is_dir():
        return Path(name)
    if Path(name).is_absolute() or name.startswith("."):
        raise build_model_misuse(name, "there is no such folder")
    import httpx
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(_MODEL_FILES)))
    except (OSError, ValueError, httpx.HTTPError) as error:
        raise build_model_misuse(name, f"cannot be loaded: {get_first_line(error)}") from None


def refuse_unusable(folder: Path) -> None:
    """Raise Misuse for a folder whose model or adapter has no trained head, or no safetensors;
    loads nothing."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise build_model_misuse(
            folder, "cannot be loaded: it holds no *.safetensors, and other weights are not read"
        )
    if not any(
        part in HEADS
        for file in files
        for name in _read_weight_names(file)
        for part in name.split(".")
    ):
        raise build_model_misuse(folder, NO_HEAD)


def get_model_label(name: str) -> str:
    """Return what to call a model in metrics and verdicts: the last part of its name, or of its
    parent for `final`."""
    folder = Path(name)
    return (folder.parent.name if folder.name == "final" else "") or folder.name


def resolve_base_model(folder: Path) -> str:
    """Return the model that an adapter belongs to, also after the run folder was moved."""
    name = str(read_json_object(folder / ADAPTER).get("base_model_name_or_path"))
    beside = folder.parent / Path(name).name
    return str(beside) if not Path(name).exists() and beside.is_dir() else name


def read_json_object(file: Path) -> dict[str, Any]:
    """Return a JSON object. Raises Misuse when the file holds none."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Misuse(f"{file}: cannot be read: {get_first_line(error)}") from None
    if not isinstance(value, dict):
        raise Misuse(f"{file}: is no JSON object")
    return value


def compute_fingerprint(folder: Path) -> str:
    """Return the hash of everything that a score depends on but precision, of an adapter's base
    too; of names and bytes."""
    digest = hashlib.sha256()
    for file in _list_files(folder):
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        digest.update(f"{file.name}\0{content}\0".encode())
    return digest.hexdigest()


def _list_files(folder: Path) -> Iterator[Path]:
    some = {file for kind in _MODEL_FILES for file in folder.glob(kind) if file.name not in _ASIDE}
    yield from sorted(some)
    if (folder / ADAPTER).exists():
        yield from _list_files(resolve_model_folder(resolve_base_model(folder)))


def get_first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _read_weight_names(file: Path) -> list[str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as handle:
            return list(handle.keys())
    except (OSError, SafetensorError) as error:
        raise build_model_misuse(file.parent, f"its weights cannot be read: {error}") from None
