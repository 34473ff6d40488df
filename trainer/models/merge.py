"""`gradus merge`: an adapter becomes part of its base model, and the result is shown to be the same
model.

What was written is read back, compared with base and adapter on the same tokens, and only then
given its name. GGUF is written by llama.cpp's own converter, where there is one. Trains nothing and
quantizes nothing itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.reward_model.model_files import (
    ADAPTER,
    get_first_line,
    read_json_object,
    resolve_base_model,
)
from trainer.config.run import ModelConfig
from trainer.models.loading import load_model, load_tokenizer
from trainer.runs.folder import Log, write_whole

TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 8e-2}
"""Largest allowed difference of two logits, as a share of the largest logit, by type of the
weights."""
PROBES, PROBE_LENGTH = 4, 16
CONVERTER = "convert_hf_to_gguf.py"
LLAMA_CPP = "LLAMA_CPP_DIR"


def main(adapter: Path, out: Path | None, gguf: str | None, dtype: str, log: Log) -> Path:
    """Write the merged model, and its GGUF if `gguf` names a type of llama.cpp's; where the model
    lies.

    `adapter` is a folder with an adapter, or a run folder with one in `final`. Raises Misuse.
    """
    folder = next(
        (
            candidate
            for candidate in (adapter, adapter / "final")
            if (candidate / ADAPTER).is_file()
        ),
        None,
    )
    if folder is None:
        raise Misuse(f"{adapter}: holds no adapter ({ADAPTER}), neither there nor in final/")
    target = out if out is not None else folder.with_name("merged")
    if target.exists() and any(target.iterdir()):
        raise Misuse(f"{target}: is there already; name another folder with --out")
    converter = find_converter() if gguf else []
    with write_whole(target) as half:
        difference = merge(folder, half, dtype)
    log(
        f"logits of the merged model differ from the adapter's by {difference:.1e} of the largest"
        " at most"
    )
    log(f"the merged model is in {target}")
    if gguf:
        log(f"its GGUF is {convert_to_gguf(converter, target, gguf)}")
    return target


def merge(folder: Path, target: Path, dtype: str = "auto") -> float:
    """Write the model with the adapter merged in, and its tokenizer; how far the logits of what was
    written are from the adapter's, as a share.

    Raises Misuse where they are further apart than rounding explains.
    """
    from peft import PeftModel

    adapter_config = read_json_object(folder / ADAPTER)
    scores = adapter_config.get("task_type") == "SEQ_CLS"
    base = resolve_base_model(folder)
    kind = _read_dtype(base) if dtype == "auto" else dtype
    try:
        model = PeftModel.from_pretrained(
            load_model(base, ModelConfig(name=base), kind, scores), str(folder)
        ).eval()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise Misuse(
            f"{folder}: the adapter does not fit {base}: {get_first_line(error)}"
        ) from None
    expected = compute_logits(model)
    model.merge_and_unload(safe_merge=True).save_pretrained(target)
    load_tokenizer(str(folder), ModelConfig(name=str(folder))).save_pretrained(target)
    merged = load_model(str(target), ModelConfig(name=str(target)), kind, scores).eval()
    difference = measure_difference(expected, compute_logits(merged))
    if not difference <= TOLERANCES[kind]:
        raise Misuse(
            f"{folder}: merged in {kind}, logits differ by {difference:.1e} of the largest, and"
            f" rounding explains {TOLERANCES[kind]:.0e}; try --dtype float32"
        )
    return difference


def compute_logits(model: Any) -> Any:
    """In float32, for the same tokens each time: [probes, length, vocabulary], or [probes, 1] of
    scores."""
    import torch

    vocabulary = model.get_input_embeddings().weight.shape[0]
    draw = torch.Generator().manual_seed(1)
    ids_PT = torch.randint(0, vocabulary, (PROBES, PROBE_LENGTH), generator=draw).to(model.device)
    with torch.inference_mode():
        return model(input_ids=ids_PT, attention_mask=torch.ones_like(ids_PT)).logits.float()


def measure_difference(expected: Any, actual: Any) -> float:
    """Return the largest difference, as a share of the largest value; NaN where there is one."""
    return float((expected - actual).abs().max() / expected.abs().max().clamp(min=1e-9))


def _read_dtype(base: str) -> str:
    """Return the one that the base was saved in."""
    from transformers import AutoConfig

    try:
        dtype = str(AutoConfig.from_pretrained(base).dtype).removeprefix("torch.")
    except (OSError, ValueError) as error:
        raise Misuse(
            f"{base}: the adapter's base cannot be loaded: {get_first_line(error)}"
        ) from None
    return dtype if dtype in TOLERANCES else "float32"


def find_converter() -> list[str]:
    """Return the command that converts. Raises Misuse, saying how to get one."""
    places = [os.environ.get(LLAMA_CPP), os.environ.get("PATH")]
    script = shutil.which(CONVERTER, os.F_OK, os.pathsep.join(filter(None, places)))
    if script is not None:
        return [sys.executable, script]
    raise Misuse(
        "--gguf needs llama.cpp's converter, and there is none on PATH or in $LLAMA_CPP_DIR: git"
        " clone https://github.com/ggml-org/llama.cpp, pip install gguf, and set LLAMA_CPP_DIR to"
        " the clone"
    )


def convert_to_gguf(converter: list[str], model: Path, kind: str) -> Path:
    """Return the GGUF file of a whole model, beside its weights. Raises Misuse with the converter's
    last words."""
    target = model / f"{model.resolve().parent.name}-{kind}.gguf"
    command = [*converter, str(model), "--outfile", str(target), "--outtype", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not target.is_file():
        words = []
        for line in (done.stderr or done.stdout).strip().splitlines():
            if line.strip():
                words.append(line)
        raise Misuse(
            f"{model}: llama.cpp's converter failed: {' / '.join(words[-2:]) or 'no output'}"
        )
    return target
