"""System A: OCaml from worked answers, then from compiler and tests. Its files: two CSV tables,
JSONL and an .envrc."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.reference_users.user import User
from tests.tiny_models import make_model

SERVICE = ["--reward.urls", "http://127.0.0.1:8000"]
ENVRC = """\
export BASE_MODEL_ID="Qwen/Qwen2.5-Coder-1.5B-Instruct"
export TRAINING_DATASET="kiranpg/ocaml-training-problems"
export GRPO_OUTPUT_DIR="runs/ocaml_qwen_1.5b"
export GRPO_BATCH_SIZE=2
export GRPO_GRAD_ACCUM_STEPS=2
export GRPO_NUM_GENERATIONS=2
export GRPO_GENERATION_BATCH_SIZE=4
export GRPO_MAX_PROMPT=800
export GRPO_MAX_COMPLETION=16
export GRPO_LEARNING_RATE=5e-6
export REWARD_POOL_SIZE=10
export LORA_R=8
export LORA_ALPHA=16
"""
VERBS = {"add": "+", "take": "-", "multiply": "*"}
SAYS = {
    "add": "[{name} x] is the sum of the whole number [x] and {number}; it may be negative.",
    "take": (
        "What is left of the given amount when {number} of it are gone, for example by [{name}]."
    ),
    "multiply": (
        "Repeats its argument {number} times and tells how many that makes together: [{name}]."
    ),
}


def problem(verb: str, number: int) -> tuple[str, str, str]:
    """A prompt that ends in an unfinished definition, its tests, and the rest of the definition."""
    name = f"{verb}_{number}"
    sign = VERBS[verb]
    ask = (
        f"(** {SAYS[verb].format(name=name, number=number)}\n  >>> {name} 1\n*)\nlet {name} (x :"
        " int) : int =\n"
    )
    cases = "\n".join(f"  assert ({name} {x} = {x} {sign} {number});" for x in (1, 5, 12))
    return ask, f"let () =\n{cases}\n;;\n", f"  x {sign} {number}"


def write_csv(file: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([columns, *rows])


def prepare(folder: Path) -> None:
    make_model("qwen2", folder / "Qwen" / "Qwen2.5-Coder-1.5B-Instruct")
    train = [(f"oss_{number}", *problem("add", number)[:2]) for number in range(8)]
    # A row that occurs twice under another id, as there are some in theirs.
    write_csv(folder / "train.csv", ("id", "prompt", "tests"), [*train, ("oss_100", *train[0][1:])])
    rows = []
    for number in range(3, 9):
        verb, level = ("take", "easy") if number == 3 else ("multiply", "medium")
        ask, tests, solution = problem(verb, number)
        rows.append((f"eval_{number}", ask, solution if verb == "take" else "  0", tests, level))
    write_csv(folder / "eval.csv", ("id", "problem", "solution", "tests", "difficulty"), rows)
    answers = []
    for number in range(20, 40):
        ask, _, solution = problem("add", number)
        answers.append({"prompt": ask, "solution": f"```ocaml\n{ask}{solution}\n```"})
    (folder / "sft.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    (folder / ".envrc").write_text(ENVRC)


def check(folder: Path) -> None:
    asked = [
        json.loads((folder / name).read_text().splitlines()[0])["prompt"]
        for name in ("train.jsonl", "answers.jsonl")
    ]
    assert (
        len({prompt.partition("```ocaml")[0] for prompt in asked}) == 1
    )  # both stages ask in the same words
    rows = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"eval_{number}" for number in range(3, 9)]
    assert [row.get("solution") is not None for row in rows] == [True] + [
        False
    ] * 5  # stubs count as absent
    trained = [
        json.loads(line)
        for line in (folder / "runs/ocaml_qwen_1.5b/tasks.train.jsonl").read_text().splitlines()
    ]
    assert {row["id"] for row in trained} == {f"oss_{number}" for number in range(8)}
    assert (folder / "runs/ocaml_qwen_1.5b/final/adapter_config.json").exists()
    assert (folder / "compared.html").stat().st_size > 10_000


USER = User(
    guide="from_ocamler_grpo",
    prepare=prepare,
    smaller={
        "gradus train sft": ["--num_train_epochs", "1", "--data.held_out", "0.2"],
        "gradus train configs/train/ocaml_qwen_1.5b.yaml": [
            *SERVICE,
            "--max_steps",
            "2",
            "--evaluation.samples",
            "1",
        ],
        "gradus eval": ["--max-new-tokens", "16"],
        "gradus pipeline run": ["--dry-run"],
    },
    check=check,
)
