"""Trains the story grader's pair model:
`python -m tools.story_model.train_pairs services/graders/story/pairs.safetensors`.

It is a low-rank adapter of the sentence model that reads two texts in one pass, and a linear head:
the same, denied, other. Learns from `configs/tasks/story.jsonl`, without every HELD_OUT_EVERY-th
task, and `stories.txt` (`pair_texts.py`). Needs torch and transformers; takes about 10 minutes of
CPU. Same processor: same weights.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, BertModel

from gradus.resources import configs
from services.graders.story.export import find_weights
from tools.story_model.pair_texts import DENIED, OTHER, SAME, Pair, examples, pairs

SEED = 20
PAIRS = 46_000
RANK = 16
BATCH = 32
RATE, HEAD_RATE = 8e-4, 2e-3
HELD_OUT_EVERY = 5
"""Step from one shipped task that is left out, for measuring, to the next; the third is the
first."""
MOST_TOKENS = 96


class LowRank(nn.Module):
    """A linear layer that stays as it is, plus a product of two small matrices that learns."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        given: torch.Tensor = self.base(value) + (value @ self.a.T) @ self.b.T
        return given


class PairReader(nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.encoder = BertModel.from_pretrained(
            folder, add_pooling_layer=False, attn_implementation="sdpa"
        )
        self.encoder.requires_grad_(requires_grad=False)
        width = self.encoder.config.hidden_size
        for layer in self.encoder.encoder.layer:
            for holder, name in (
                (layer.attention.self, "query"),
                (layer.attention.self, "key"),
                (layer.attention.self, "value"),
                (layer.attention.output, "dense"),
                (layer.intermediate, "dense"),
                (layer.output, "dense"),
            ):
                setattr(holder, name, LowRank(getattr(holder, name)))
        self.encoder.embeddings.token_type_embeddings.requires_grad_()
        self.head = nn.Linear(4 * width, 3)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(
            input_ids=ids, attention_mask=mask, token_type_ids=types
        ).last_hidden_state.float()
        means = []
        for side in (mask * (1 - types), mask * types):
            column = side.unsqueeze(-1).float()
            means.append((hidden * column).sum(1) / column.sum(1))
        one, other = means
        logits: torch.Tensor = self.head(
            torch.cat([one, other, (one - other).abs(), one * other], 1)
        )
        return logits

    def learnt(self) -> dict[str, torch.Tensor]:
        """Names as `services.graders.story.graph` reads them."""
        named = {
            name.removeprefix("encoder."): value
            for name, value in self.named_parameters()
            if value.requires_grad
        }
        return {
            name.replace("embeddings.token_type_embeddings.weight", "types"): value
            for name, value in named.items()
        }


def _batches(known: list[Pair], chance: random.Random) -> Iterator[list[Pair]]:
    """Batches of pairs of like length, in a random order."""
    block = 16 * BATCH
    for start in range(0, len(known), block):
        part = sorted(
            known[start : start + block], key=lambda pair: len(pair.first) + len(pair.second)
        )
        cut = [part[at : at + BATCH] for at in range(0, len(part), BATCH)]
        yield from chance.sample(cut, len(cut))


def _given(
    tokenizer: AutoTokenizer, batch: Sequence[Pair]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    texts = [pair.first for pair in batch], [pair.second for pair in batch]
    read = tokenizer(
        *texts, padding=True, truncation=True, max_length=MOST_TOKENS, return_tensors="pt"
    )
    return read["input_ids"], read["attention_mask"], read["token_type_ids"]


@torch.inference_mode()
def confusion(
    reader: PairReader, tokenizer: AutoTokenizer, known: Sequence[Pair]
) -> list[list[int]]:
    """Counts: label by row, found by column."""
    reader.eval()
    table = [[0] * 3 for _ in range(3)]
    for start in range(0, len(known), 64):
        batch = known[start : start + 64]
        for pair, found in zip(
            batch, reader(*_given(tokenizer, batch)).argmax(1).tolist(), strict=True
        ):
            table[pair.label][found] += 1
    return table


def main(out: Path) -> None:
    """Train the pair model and write its weights; print how it labels pairs of unseen tasks."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    tasks = configs() / "tasks" / "story.jsonl"
    numbers = [f"story-{number + 1:03d}-" for number in range(66)]
    held_out = frozenset(numbers[2::HELD_OUT_EVERY])
    stories = Path(__file__).with_name("stories.txt")
    known = examples(stories, tasks, held_out)
    unseen = [
        one
        for one in examples(stories, tasks, frozenset(numbers) - held_out)
        if not one.contradictions
    ]
    data = pairs(known, PAIRS, SEED)
    chance = random.Random(SEED)
    folder = find_weights()
    reader = PairReader(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    head = list(reader.head.parameters())
    rest = [
        value
        for name, value in reader.named_parameters()
        if value.requires_grad and not name.startswith("head.")
    ]
    groups = [{"params": rest, "lr": RATE}, {"params": head, "lr": HEAD_RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    steps = (len(data) + BATCH - 1) // BATCH
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 60, max(0.0, 1 - step / steps) / 0.7)
    )
    started = time.process_time()
    losses = []
    reader.train()
    for step, batch in enumerate(_batches(data, chance)):
        with torch.autocast("cpu", torch.bfloat16):
            logits = reader(*_given(tokenizer, batch))
        loss = cross_entropy(
            logits.float(), torch.tensor([pair.label for pair in batch]), label_smoothing=0.05
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_([*rest, *head], 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 100 == 99:
            mean = sum(losses[-100:]) / 100
            print(
                f"{step + 1} of {steps}: loss {mean:.3f}, {time.process_time() - started:.0f} s"
                " of CPU",
                flush=True,
            )
            _write(out, reader)
    _write(out, reader)
    print(
        f"rows and columns {SAME=} {DENIED=} {OTHER=}; tasks left out:",
        confusion(reader, tokenizer, pairs(unseen, 600, 1)),
    )


def _write(path: Path, reader: PairReader) -> None:
    save_file(
        {
            name: value.detach().numpy().astype(np.float16)
            for name, value in reader.learnt().items()
        },
        path,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
