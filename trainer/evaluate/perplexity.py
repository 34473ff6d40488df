"""How well a model foresees a text: perplexity of documents, worked answers and chats. Samples and
grades nothing.

Every token that is counted is foreseen once, from all tokens of its document before it that the
window holds. Of chats and worked answers only what the assistant says is counted, and of no
document the first token, which nothing precedes.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from rich.console import Console

from gradus.errors import Misuse
from gradus.row_reader import non_empty_rows
from gradus.whole_file import write_text
from trainer.data.prompts import token_ids
from trainer.evaluate.completion_store import is_chat
from trainer.evaluate.intervals import Part, bootstrap, ratio
from trainer.evaluate.likelihood import DEFAULT_WINDOW, Document, Sums, exp_of, sums_of


class Perplexity(Part):
    schema_: Literal["gradus/perplexity@1"] = Field("gradus/perplexity@1", alias="schema")
    model: str
    data: str
    """Name of the file."""
    data_sha256: str
    documents: int
    tokens: int
    """That were counted."""
    window: int
    """Tokens that the model sees at once, at most."""
    stride: int
    perplexity: float
    """exp of the mean negative log-likelihood of a token."""
    interval: tuple[float, float] | None
    """That holds it with 95% confidence, by a bootstrap over documents; None where there is only
    one."""
    nats_per_token: float
    bits_per_byte: float
    """Independent of the tokenizer: of the bytes of the texts that were counted."""
    duration_s: float


def main(model: str, data: Path, out: Path, window: int | None = None) -> int:
    """Measure a model here on a file; the figure is printed, and the path of its JSON file last.

    Raises Misuse for data and sizes that cannot be used, and for a model that cannot be loaded.
    """
    from trainer.evaluate.collect import progress_bar
    from trainer.evaluate.setup import config_beside, load

    started = time.monotonic()
    try:
        digest = hashlib.sha256(data.read_bytes()).hexdigest()
    except OSError as error:
        raise Misuse(f"{data}: cannot be read: {error.strerror}") from None
    loaded, tokenizer = load(model, config_beside(Path(model)))
    loaded.eval()
    tokenizer.model_max_length = (
        2**62
    )  # longer documents are read in windows; transformers would warn of them
    most = getattr(loaded.config, "max_position_embeddings", None) or DEFAULT_WINDOW
    if window is not None and not 2 <= window <= most:
        raise Misuse(f"window must be 2 to {most} tokens, as many as the model takes, not {window}")
    size = int(window or min(most, DEFAULT_WINDOW))
    documents = list(documents_of(data, tokenizer))
    sums = []
    with progress_bar(Console(stderr=True)) as on_progress:
        for number, document in enumerate(documents, start=1):
            sums.append(sums_of(loaded, document, size, size // 2))
            on_progress("read", number, len(documents))
    told: dict[str, Any] = {
        "model": model,
        "data": data.name,
        "data_sha256": digest,
        "window": size,
        "stride": size // 2,
    }
    found = perplexity_of(sums, **told, duration_s=round(time.monotonic() - started, 3))
    path = out / "perplexity.json"
    write_text(path, found.model_dump_json(by_alias=True, indent=1) + "\n")
    ends = (
        f", 95% interval {found.interval[0]:.4g} to {found.interval[1]:.4g}"
        if found.interval
        else ""
    )
    of = f"{found.tokens:,} tokens of {found.documents:,} documents"
    print(f"perplexity {found.perplexity:.4g}{ends}; {found.bits_per_byte:.4g} bits per byte; {of}")
    print(path)
    return 0


def perplexity_of(sums: Sequence[Sums], *, data: str, **told: Any) -> Perplexity:
    """The figures of a file's documents; `told` are fields that say how they were measured.

    Raises Misuse when there is no token to count.
    """
    tokens = sum(one.tokens for one in sums)
    if tokens == 0:
        raise Misuse(
            f"{data}: holds no token that could be foreseen; a document needs two at least"
        )
    nats = sum(one.nats for one in sums)
    several = sum(one.tokens > 0 for one in sums) > 1
    ends = (
        bootstrap([one.nats for one in sums], [one.tokens for one in sums], statistic=ratio)
        if several
        else None
    )
    return Perplexity(
        data=data,
        documents=len(sums),
        tokens=tokens,
        perplexity=exp_of(nats / tokens),
        interval=(exp_of(ends[0]), exp_of(ends[1])) if ends else None,
        nats_per_token=nats / tokens,
        bits_per_byte=nats / math.log(2) / max(1, sum(one.counted_bytes for one in sums)),
        **told,
    )


# ----------------------------------------------------------------------------------------- reading


def documents_of(path: Path, tokenizer: Any) -> Iterator[Document]:
    """The documents of a .txt file (one), or the rows of a file: `text`, `messages`, or `prompt`
    and `completion`.

    Raises Misuse naming the row that is none of them.
    """
    if path.suffix == ".txt":
        try:
            yield _of_parts([(path.read_text(encoding="utf-8-sig"), True)], tokenizer)
        except (OSError, UnicodeDecodeError) as error:
            raise Misuse(f"{path}: cannot be read as text: {error}") from None
        return
    for row in non_empty_rows(path):
        values = row.values
        prompt, completion = values.get("prompt"), values.get("completion", values.get("solution"))
        if isinstance(values.get("text"), str):
            yield _of_parts([(values["text"], True)], tokenizer)
        elif isinstance(prompt, str) and isinstance(completion, str):
            yield _of_parts([(prompt, False), (completion, True)], tokenizer)
        elif values.get("messages") and is_chat(values["messages"]):
            yield _of_chat(values["messages"], tokenizer, row.where)
        else:
            raise Misuse(f"{row.where}: has neither text, nor messages, nor prompt and completion")


def _of_parts(parts: Sequence[tuple[str, bool]], tokenizer: Any) -> Document:
    """Texts, and whether each counts. They are tokenized one by one, as trainers do with prompt and
    completion."""
    ids: list[int] = []
    counted: list[bool] = []
    for number, (text, counts) in enumerate(parts):
        found = tokenizer(text=text, add_special_tokens=number == 0)["input_ids"]
        ids += found
        counted += [counts] * len(found)
    return Document(
        ids, counted, sum(len(text.encode(errors="replace")) for text, counts in parts if counts)
    )


def _of_chat(messages: Sequence[Mapping[str, Any]], tokenizer: Any, where: str) -> Document:
    """What a template adds with an answer of the assistant's, its end included, is counted."""
    from jinja2 import TemplateError

    ids: list[int] = []
    counted: list[bool] = []
    answers = [place for place, turn in enumerate(messages) if turn["role"] == "assistant"]
    if not answers:
        raise Misuse(f"{where}: messages: the assistant says nothing in it")
    for place, asks in ((place, asks) for place in answers for asks in (True, False)):
        said: Any = list(messages[: place if asks else place + 1])
        try:
            longer = token_ids(tokenizer, said, is_answer_due=asks) if said else []
        except (TemplateError, ValueError) as error:
            raise Misuse(f"{where}: the model's chat template refuses it: {error}") from None
        # A template may begin otherwise than before: thoughts of earlier turns are dropped.
        same = len(os.path.commonprefix([ids, longer]))
        ids[same:] = longer[same:]
        counted[same:] = [not asks] * (len(longer) - same)
    return Document(
        ids,
        counted,
        sum(len(messages[place]["content"].encode(errors="replace")) for place in answers),
    )
