"""How well a model foresees a text: perplexity of documents. Samples and grades nothing.

Every token but a document's first is foreseen once, from all tokens of its document before it that
the window holds.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from rich.console import Console

from gradus.errors import Misuse
from gradus.row_reader import read_non_empty_rows
from gradus.whole_file import write_text
from trainer.evaluate.intervals import Part, Rate, compute_ratio

DEFAULT_WINDOW = 2048
"""Tokens that a model reads at once, at most."""


class Perplexity(Part):
    schema_: Literal["gradus/perplexity@1"] = Field("gradus/perplexity@1", alias="schema")
    model: str
    data: str
    data_sha256: str
    documents: int
    tokens: int
    window: int
    perplexity: Rate
    """exp of the mean negative log-likelihood of a token, with an interval over documents."""
    bits_per_byte: float
    """Independent of the tokenizer: of the bytes of the texts that were counted."""
    duration_s: float


def main(model: str, data: Path, out: Path) -> int:
    """Measure a model here on a file; the figure is printed, and the path of its JSON file last.

    Raises Misuse for data that cannot be used, and for a model that cannot be loaded.
    """
    from trainer.evaluate.collect import show_progress_bar
    from trainer.evaluate.setup import find_run_config, load

    started = time.monotonic()
    try:
        digest = hashlib.sha256(data.read_bytes()).hexdigest()
    except OSError as error:
        raise Misuse(f"{data}: cannot be read: {error.strerror}") from None
    loaded, tokenizer = load(model, find_run_config(Path(model)))
    loaded.eval()
    # Longer documents are read in windows; transformers would warn of them.
    tokenizer.model_max_length = 2**62
    context_size = getattr(loaded.config, "max_position_embeddings", None) or DEFAULT_WINDOW
    window = int(min(context_size, DEFAULT_WINDOW))
    texts = read_documents(data)
    tokens = []
    nats = []
    with show_progress_bar(Console(stderr=True)) as on_progress:
        for number, text in enumerate(texts, start=1):
            ids = tokenizer(text=text)["input_ids"]
            if len(ids) > 1:
                tokens.append(len(ids) - 1)
                nats.append(compute_nats(loaded, ids, window))
            on_progress("read", number, len(texts))
    rate = compute_perplexity(nats, tokens)
    if rate is None:
        raise Misuse(
            f"{data.name}: holds no token that could be foreseen; a document needs two at least"
        )
    size_bytes = sum(len(text.encode(errors="replace")) for text in texts)
    figures = Perplexity(
        model=model,
        data=data.name,
        data_sha256=digest,
        documents=len(texts),
        tokens=sum(tokens),
        window=window,
        perplexity=rate,
        bits_per_byte=sum(nats) / math.log(2) / size_bytes,
        duration_s=round(time.monotonic() - started, 3),
    )
    path = out / "perplexity.json"
    write_text(path, figures.model_dump_json(by_alias=True, indent=1) + "\n")
    totals = f"{figures.tokens:,} tokens of {figures.documents:,} documents"
    print(
        f"perplexity {rate.value:.4g} ({rate.low:.4g} to {rate.high:.4g});"
        f" {figures.bits_per_byte:.4g} bits per byte; {totals}"
    )
    print(path)
    return 0


def compute_nats(model: Any, tokens: Sequence[int], window: int) -> float:
    """Return the negative log-likelihood of the tokens of a document after the first, in nats.

    A document longer than `window` is read in windows that overlap by half; each token is counted
    in the first window that holds it.
    """
    import torch

    nats = 0.0
    done = 1
    ids = torch.tensor(tokens, device=model.device)
    while done < len(ids):
        end = min(len(ids), window if done == 1 else done + max(1, window // 2))
        start = max(0, end - window)
        with torch.no_grad():
            logits = model(input_ids=ids[None, start:end], use_cache=False).logits[0]
        chosen = logits[done - 1 - start : -1].float()
        losses = torch.nn.functional.cross_entropy(chosen, ids[done:end], reduction="none")
        nats += float(losses.double().sum())
        done = end
    return nats


def compute_perplexity(nats: Sequence[float], tokens: Sequence[int]) -> Rate | None:
    """exp of the mean nats of a token, both given by document; None for no document."""
    rate = compute_ratio(nats, tokens, 0)
    if rate is None:
        return None
    # A model that gives a token no chance at all is as bad as a number can say.
    ends = {name: math.exp(min(getattr(rate, name), 700.0)) for name in ("value", "low", "high")}
    return rate.model_copy(update=ends)


# ----------------------------------------------------------------------------------------- reading


def read_documents(path: Path) -> list[str]:
    """Return the text of a .txt file, or those of the rows of a file with `text`.

    Raises Misuse naming the row that has none.
    """
    if path.suffix != ".txt":
        return [row.text("text") for row in read_non_empty_rows(path)]
    try:
        return [path.read_text(encoding="utf-8-sig")]
    except UnicodeDecodeError as error:
        raise Misuse(f"{path}: cannot be read as text: {error}") from None
