"""System D: supervised training, preferences, a reward model and RLOO on GPT-2, with rows of Alpaca
and of hh-rlhf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.reference_users.user import User
from tests.tiny_models import make_model

SMALL = ["--data.limit", "12", "--data.held_out", "0.2", "--num_train_epochs", "1"]


def write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def prepare(folder: Path) -> None:
    make_model("gpt2", folder / "openai-community" / "gpt2")
    alpaca = [
        {
            "instruction": f"Add {n} and 1.",
            "input": "" if n % 2 else "Answer in one word.",
            "output": f"It is {n + 1}.",
        }
        for n in range(20)
    ]
    write_rows(folder / "yahma" / "alpaca-cleaned" / "train.jsonl", alpaca)
    write_rows(folder / "alpaca.jsonl", alpaca)
    asked = "\n\nHuman: What is {n} plus 1?\n\nAssistant: "
    pairs = [
        {"chosen": f"{asked.format(n=n)}It is {n + 1}.", "rejected": f"{asked.format(n=n)}Go away."}
        for n in range(20)
    ]
    pairs[3]["rejected"] = pairs[3]["chosen"]  # some of theirs are twice the same answer
    write_rows(folder / "Anthropic" / "hh-rlhf" / "train.jsonl", pairs)
    (folder / "book.txt").write_text("A word after a word after a word is power. " * 20)
    write_rows(
        folder / "prompts.jsonl",
        [{"prompt": "Human: Say something.\n\nAssistant:"}, {"prompt": "Once upon"}],
    )


def check(folder: Path) -> None:
    for name in ("sft_alpaca_gpt2", "dpo_hh_gpt2", "reward_hh_gpt2", "rloo_hh_gpt2"):
        assert (folder / "runs" / name / "final").is_dir(), name
    assert (
        folder / "runs" / "sft-openai-community-gpt2-alpaca" / "final" / "adapter_config.json"
    ).exists()
    metrics = json.loads((folder / "completions.metrics.json").read_text())
    assert metrics["completions"] == 2
    assert metrics["text"]["distinct_1"] > 0


USER = User(
    guide="from_autotune",
    prepare=prepare,
    smaller={
        "gradus train sft configs/train": SMALL,
        "gradus chat": ["--max-new-tokens", "8"],
        "gradus train dpo": SMALL,
        "gradus train reward": SMALL,
        "gradus train rloo": [
            "--max_steps",
            "2",
            "--max_completion_length",
            "8",
            "--data.limit",
            "8",
        ],
        "gradus sample": ["--max-new-tokens", "8"],
    },
    not_run={
        "gradus merge ADAPTER --gguf": (
            "the converter is llama.cpp's, which is a program of its own"
        ),
        "gradus train sft FILE": "the form of a command, of which the others are examples",
    },
    check=check,
)
