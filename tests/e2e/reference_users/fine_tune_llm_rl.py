"""System E: small models on Apple Silicon. Its files are a CSV of meetings and traces of an
agent."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.reference_users.ocamler_grpo import write_csv
from tests.e2e.reference_users.user import User
from tests.tiny_models import make_model

MEETINGS = ("input_text", "target_probability", "target_reason", "ground_truth_prob")


def prepare(folder: Path) -> None:
    make_model("gemma3_text", folder / "google" / "gemma-3-270m-it")
    make_model("qwen3", folder / "Qwen" / "Qwen3-0.6B")
    (folder / "data").mkdir()
    rows = [
        (f"Meeting of {people} people about the budget.", people / 25, "size", people / 25)
        for people in range(1, 21)
    ]
    write_csv(folder / "data" / "meetings.csv", MEETINGS, rows)
    traces = [
        {
            "prompt": f"Will meeting {number} succeed?",
            "chosen": "I looked at the calendar. YES",
            "rejected": "Perhaps.",
        }
        for number in range(10)
    ]
    (folder / "data" / "traces.jsonl").write_text("".join(json.dumps(row) + "\n" for row in traces))


def check(folder: Path) -> None:
    for name in ("sft_meetings_gemma3_270m", "dpo_agent_qwen3_0.6b"):
        assert (folder / "runs" / name / "final" / "adapter_config.json").exists()


USER = User(
    guide="from_fine_tune_llm_rl",
    prepare=prepare,
    smaller={
        "gradus train sft configs/train/sft_meetings_gemma3_270m.yaml --dry-run": [],
        "gradus train sft": ["--num_train_epochs", "1"],
        "gradus train dpo": ["--max_steps", "2"],
        "gradus eval": ["--max-new-tokens", "16", "--limit", "3"],
    },
    not_run={"make setup": "it made the environment in which this runs"},
    statuses={"make verify-mps": 2},  # there is no MPS here
    serves="ocaml",
    check=check,
)
