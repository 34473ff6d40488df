"""Makes an ordinary model folder of a GGUF file, for loaders and trainers that read safetensors.

    python -m tools.gguf_model MODEL.gguf OUT

OUT gets float32 weights, the configuration, the tokenizer and the chat template of the file.
Quantized weights become what they stand for: nothing is won back, and nothing more is lost. Needs
the package `gguf`.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

from gradus.errors import Misuse

TEXT = (
    "As a tenant, I want to report a leaking tap with a photo from my phone, so that the plumber"
    " knows what to bring. The visit took 35 minutes and cost nothing.\n"
)
MOST_NATS = 5.0
"""Mean loss of TEXT per token, in nats. Trained models have 2 to 4; one whose weights or tokens are
mixed up has the logarithm of its vocabulary or more, 8 to 12."""


def convert(source: Path, out: Path) -> int:
    """Write the folder `out` and prove that it can be loaded and knows English; its number of
    parameters.

    Raises Misuse where the file cannot be read, `out` exists, or the result is not a working model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if out.exists():
        raise Misuse(f"{out}: exists already; name another folder")
    try:
        place = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
        quantized = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(**place)
    except (OSError, ValueError, ImportError, KeyError, struct.error) as error:
        raise Misuse(
            f"{source}: cannot be read as GGUF: {str(error).strip().splitlines()[0]}"
        ) from None
    if not tokenizer.chat_template:
        raise Misuse(f"{source}: has no chat template, so it is no model to talk to")
    # save_pretrained refuses a model whose configuration is that of quantized weights, and its
    # weights are not.
    told = {
        name: value
        for name, value in quantized.config.to_dict().items()
        if name != "quantization_config"
    }
    model = type(quantized)(type(quantized.config).from_dict(told)).float()
    model.load_state_dict(quantized.state_dict())
    model.generation_config = quantized.generation_config
    tokenizer.model_max_length = model.config.max_position_embeddings
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.") as partial:
        folder = Path(partial) / "model"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        _refuse_broken(folder, source)
        folder.rename(out)
    return int(model.num_parameters())


def _refuse_broken(folder: Path, source: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    if tokenizer.decode(ids[0]) != TEXT:
        raise Misuse(
            f"{source}: the tokenizer does not give back the text that it was given:"
            f" {tokenizer.decode(ids[0])}"
        )
    with torch.inference_mode():
        loss = float(model(input_ids=ids, labels=ids).loss)
    if not loss < MOST_NATS:
        raise Misuse(
            f"{source}: an English sentence costs {loss:.1f} nats a token, so weights or tokens are"
            " mixed up"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tools.gguf_model", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("source", type=Path, help="GGUF file")
    parser.add_argument("out", type=Path, help="folder to write")
    asked = parser.parse_args()
    try:
        print(f"{convert(asked.source, asked.out):,} parameters in {asked.out}")
    except Misuse as misuse:
        sys.exit(str(misuse))
