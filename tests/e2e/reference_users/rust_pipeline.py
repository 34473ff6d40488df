"""System B: a Rust agent by repairs, preferences and rewards. Its tasks: description, starter_code,
tests, solution."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from tests.e2e.reference_users.autotune import write_rows
from tests.e2e.reference_users.ocamler_grpo import SERVICE
from tests.e2e.reference_users.user import ROOT, User
from tests.tiny_models import make_model
from trainer.models.merge import CONVERTER

LM_EVAL = ROOT / "tests" / "cases" / "lm_eval"
WINDOW = 32768
GATES = """
model: runs/rust_gpt_oss_20b/final
gates:
  - {name: everything was graded, of: runs/eval/answers/results.json,
     metric: "measurements[mode=sampled].faulted", bound: value, at_most: 0}
  - {name: questions, of: runs/eval/mmlu-after, against: runs/eval/mmlu-before,
     metric: "results.own_questions.acc,none", at_least: -1}
"""


def has_converter() -> bool:
    return "LLAMA_CPP_DIR" in os.environ or shutil.which(CONVERTER, os.F_OK) is not None


def prepare(folder: Path) -> None:
    model = make_model("gpt_oss", folder / "openai" / "gpt-oss-20b")
    make_model("gpt2", folder / "openai-community" / "gpt2")  # its tokenizer is the 7B model's
    make_model("llama", folder / "models" / "llama_7b")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": WINDOW}))
    tasks = []
    for number, (name, sign) in enumerate(
        (("add", "+"), ("take", "-"), ("times", "*"), ("both", "|"), ("either", "^"))
    ):
        head = f"pub fn {name}_{number}(a: u32, b: u32) -> u32"
        tasks.append(
            {
                "description": f"Write a function that gives `a {sign} b`.",
                "starter_code": f"{head} {{\n    todo!()\n}}\n",
                "tests": (
                    f"#[test]\nfn works() {{\n    assert_eq!({name}_{number}(7, 2), 7 {sign}"
                    " 2);\n}\n"
                ),
                "solution": (
                    f"{head} {{\n    let found: Vec<u32> = [a].iter().map(|a| a {sign}"
                    " b).collect();\n    found[0]\n}\n"
                ),
                "complexity": number,
            }
        )
    write_rows(folder / "tasks.jsonl", tasks)
    for when in ("before", "after"):
        shutil.copytree(LM_EVAL / when, folder / "runs" / "eval" / f"mmlu-{when}")
    pairs = [
        {"prompt": f"Add {n}.", "chosen": f"fn f() {{ {n} }}", "rejected": "I cannot."}
        for n in range(20)
    ]
    write_rows(folder / "pairs.jsonl", pairs)
    (folder / "gates.yaml").write_text(GATES)
    (folder / "tokens").mkdir()
    (folder / "books").mkdir()
    line = "let rec power x n = if n = 0 then 1 else x * power x (n - 1)"
    (folder / "books" / "book.txt").write_text("\n".join(f"{line} (* {n} *)" for n in range(200)))
    (folder / "books" / "again.txt").write_text("\n".join(f"{line} (* {n} *)" for n in range(200)))


def check(folder: Path) -> None:
    chats = [json.loads(line) for line in (folder / "chats.jsonl").read_text().splitlines()]
    assert all(chat["messages"][-1]["role"] == "assistant" for chat in chats)
    agents = [json.loads(line) for line in (folder / "agent.jsonl").read_text().splitlines()]
    calls = [
        call
        for chat in agents
        for said in chat["messages"]
        for call in said.get("tool_calls") or ()
    ]
    called = {call["function"]["name"] for call in calls}
    # Mutations break no import, and these tasks have no crates.
    assert {tool["function"]["name"] for tool in agents[0]["tools"]} - called == {
        "search_crates_io"
    }
    assert '"eval_kl"' in (folder / "runs" / "dpo_rust_gpt_oss_20b" / "metrics.jsonl").read_text()
    for name in (
        "sft_rust_gpt_oss_20b",
        "dpo_rust_gpt_oss_20b",
        "rust_gpt_oss_20b",
        "pretrain_llama_7b",
    ):
        assert (folder / "runs" / name / "final").is_dir(), name
    assert len((folder / "tokens" / "texts.jsonl").read_text().splitlines()) == 1
    assert json.loads((folder / "promotion.json").read_text())["promoted"] is True


USER = User(
    guide="from_rust_pipeline",
    prepare=prepare,
    smaller={
        "gradus train sft": [
            "--max_steps",
            "2",
            "--data.held_out",
            "0.2",
            "--gradient_accumulation_steps",
            "1",
        ],
        "gradus train dpo": [
            "--max_steps",
            "2",
            "--data.held_out",
            "0.2",
            "--gradient_accumulation_steps",
            "1",
        ],
        "gradus train configs/train/rust_gpt_oss_20b.yaml": [
            *(
                *SERVICE,
                "--max_steps",
                "1",
                "--num_generations",
                "2",
                "--gradient_accumulation_steps",
                "2",
            ),
            *("--max_completion_length", "8", "--evaluation.samples", "0"),
        ],
        "gradus train pretrain": [
            *(
                "--data.curriculum",
                "[{length: 16, steps: 1}, {length: 32, steps: 1}]",
                "--data.held_out",
                "0.1",
            ),
            *(
                "--data.eval_blocks",
                "2",
                "--warmup_steps",
                "0",
                "--per_device_train_batch_size",
                "1",
            ),
        ],
        "gradus eval": ["--max-new-tokens", "8", "--limit", "2"],
        "gradus model": ["--dry-run"],
    },
    not_run={
        "gradus pairs": "answers of an untrained model all earn nothing, so they make no pairs",
        "lm_eval": "MMLU's questions are on the hub; tests/integrations/test_lm_eval.py runs it",
    },
    # Without the converter of llama.cpp, the command says how to get one.
    statuses={"gradus merge runs/sft_rust_gpt_oss_20b --out": 0 if has_converter() else 2},
    check=check,
)
