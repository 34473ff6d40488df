"""System C: the user stories of a sprint. Its file has sprint_name, sprint_goal, formatted_issues
and num_issues."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.reference_users.ocamler_grpo import SERVICE, write_csv
from tests.e2e.reference_users.user import ROOT, User
from tests.tiny_models import make_model

TITLES = [
    "Fix NPE in the login form",
    '"Upgrade the client library"',
    "Docs: how to rotate keys",
    "Fix NPE in the login form",
]
SMALL = [*SERVICE, "--max_steps", "2", "--max_completion_length", "16", "--num_generations", "2"]
SMALL += [
    "--per_device_train_batch_size",
    "2",
    "--gradient_accumulation_steps",
    "2",
    "--data.max_prompt_tokens",
    "1800",
]


def prepare(folder: Path) -> None:
    for name in ("Qwen/Qwen2.5-1.5B-Instruct", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"):
        make_model("qwen2", folder / name)
    shipped = [
        json.loads(line)
        for line in (ROOT / "configs/tasks/story.jsonl").read_text().splitlines()[:6]
    ]
    rows = [
        (f"Sprint {number}", task["sprint_goal"], " ||||| ".join(issues), len(issues))
        for number, task in enumerate(shipped, start=1)
        for issues in [task["references"]]
    ]
    # Most of their issues are bare titles, some in quotes, some twice.
    rows.append(
        (
            "Sprint 7",
            "Stop the login from failing for people whose profile has no name.",
            " ||||| ".join(TITLES),
            4,
        )
    )
    rows.append(
        ("Sprint 7", "Another team calls its sprint the same.", " ||||| ".join(TITLES[1:3]), 2)
    )
    write_csv(
        folder / "sprints.csv",
        ("sprint_name", "sprint_goal", "formatted_issues", "num_issues"),
        rows,
    )
    said = (
        "As a tenant, I want to report a leak with a photo, so that the plumber knows what to"
        " bring."
    )
    submission = {
        "id": "s1",
        "completion": said,
        "task": {name: shipped[0][name] for name in ("sprint_goal", "references")},
    }
    (folder / "submissions.jsonl").write_text(json.dumps(submission) + "\n")


def check(folder: Path) -> None:
    for name in ("story_basic", "story_cot"):
        assert (folder / "runs" / name / "final" / "adapter_config.json").exists()
        lines = (folder / "runs" / name / "completions.jsonl").read_text().splitlines()
        assert lines
        assert all(json.loads(line)["reward"] is not None for line in lines)


USER = User(
    guide="from_grpo_for_scrum",
    prepare=prepare,
    smaller={
        "gradus train configs/train/story_basic.yaml": [*SMALL, "--generation_batch_size", "4"],
        "gradus train configs/train/story_cot.yaml": SMALL,
        "gradus eval": ["--max-new-tokens", "16"],
    },
    check=check,
)
