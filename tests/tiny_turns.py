"""Trainers of a tiny model over several turns, whose grader is a function of the text.

Usage: torchrun ... tests/tiny_turns.py
Two processes write chains of unequal numbers of turns through TRL's vLLM client; prints what each
got.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gradus.contract import Faulted, Graded, Stage, Submission, TestCount, build_faulted
from gradus.errors import FaultKind
from gradus.tasks.ocaml import OcamlTask
from trainer.config.run import RewardConfig, TurnsConfig
from trainer.data.tasks import Example
from trainer.rewards.judge import Judge, build_submission_maker
from trainer.rollouts.rollout import Rollout

ALL_TASKS = [f"p{n}" for n in range(12)]
TASKS = ALL_TASKS[:4]


def verdict(one: Submission) -> Graded | Faulted:
    """A reward that differs within groups. Some texts pass, and some are faults."""
    number = sum(one.completion.encode())
    if number % 11 == 0:
        return build_faulted(one.id, FaultKind.WORKER, "x", retryable=False)
    given = {
        "rubric": "ocaml/strict@1",
        "grader": "ocaml@1",
        "toolchain": "t",
        "cpu_ms": 0,
        "wall_ms": 0,
    }
    reward = number % 7 / 6
    return Graded(
        id=one.id,
        reward=reward,
        passed=reward == 1,
        stage=Stage.TESTS,
        components={"tests": reward},
        **given,
    )


class Killed(Exception):
    """Ends a run where SIGKILL would."""


def judge(kill_at: int | None = None, verdict: Any = verdict) -> Judge:
    examples = {
        name: Example(name, name, OcamlTask(tests="let () = assert (f 1 = 2)"))
        for name in ALL_TASKS
    }
    config = RewardConfig(grader="ocaml", fault_budget={"share": 1.0})
    calls = 0

    async def grade(submissions: Sequence[Submission], deadline_s: float) -> list[Graded | Faulted]:
        nonlocal calls
        calls += 1
        if kill_at is not None and calls >= kill_at:
            raise Killed
        return [verdict(one) for one in submissions]

    return Judge(config, build_submission_maker(config, examples), grade)


def tiny_trainer(
    model: Path,
    output: Path,
    turns: TurnsConfig | None,
    kill_at: int | None = None,
    verdict: Any = verdict,
    tasks: Sequence[str] = TASKS,
    **options: Any,
) -> Any:
    """GRPO of the tiny model on four prompts; without `turns` the trainer of single turns."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig

    from trainer.rewards.judge import CompletionsFile
    from trainer.runs.checkpoints import SaveAtRoundEnd
    from trainer.stages.grpo import GradusTrainer
    from trainer.stages.online import make_reward_function
    from trainer.stages.rl import Rl
    from trainer.stages.turns import TurnsTrainer

    loaded = AutoModelForCausalLM.from_pretrained(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    # An untrained model ends one answer in 300; with more tokens that end one, most of them end.
    loaded.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(100, 160)]
    tokenizer.padding_side = "left"
    given = {
        **Rl.DEFAULTS,
        **{
            "max_steps": 2,
            "num_generations": 4,
            "per_device_train_batch_size": 8,
            "max_completion_length": 6,
        },
        **{
            "learning_rate": 1e-2,
            "save_steps": 1,
            "use_cpu": True,
            "bf16": False,
            "seed": 1,
            "disable_tqdm": True,
        },
        **options,
    }
    asked = judge(kill_at, verdict)
    parts: dict[str, Any]
    if turns is None:
        build = GradusTrainer
        parts = {"reward_funcs": [make_reward_function(asked.compute_rewards, asked.name, [])]}
    else:
        rollout = Rollout(turns, asked, "")
        build = TurnsTrainer
        rewards = make_reward_function(rollout.compute_rewards, asked.name, [])
        parts = {"reward_funcs": [rewards], "rollout_func": rollout}
    rows = []
    for name in tasks:
        asks = [{"role": "user", "content": f"add {name}"}]
        rows.append({"prompt": asks, "prompt_id": name})
    made = build(
        model=loaded,
        args=GRPOConfig(output_dir=str(output), **given),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        **parts,
    )
    made.asked_early = [asked]
    output.mkdir(parents=True, exist_ok=True)
    if turns is None:
        made.completions_file = CompletionsFile(output / "completions.jsonl")
        asked.record = made.completions_file.take
    else:
        rollout.prepare(made)
        made.files = (output / "completions.jsonl", output / "turns.jsonl")
    made.add_callback(SaveAtRoundEnd(made.count_round_steps()))
    return made


# ---------------------------------------------------------------------- two processes

END, USER = 2, 1


class LetterTokenizer:
    """Ids for texts: 0 to 9 are letters of answers, 1 and 2 begin a user's turn and end an
    answer."""

    eos_token_id = END

    def apply_chat_template(
        self, messages: Sequence[dict[str, str]], **_: Any
    ) -> dict[str, list[int]]:
        roles = {"user": [USER, 5], "assistant": [7, END]}
        return {"input_ids": [token for one in messages for token in roles[one["role"]]]}

    def batch_decode(self, rows: Sequence[Sequence[int]], **_: Any) -> list[str]:
        return [json.dumps(row) for row in rows]


def answer_of(prompt: Sequence[int]) -> list[int]:
    """The completion that the server gives this prompt: it tells it from all others."""
    return [100 + sum(prompt) % 9973, END]


def ranks() -> None:
    import torch
    import trl.generation.vllm_generation as vllm_generation
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    generation = object.__new__(vllm_generation.VLLMGeneration)
    generation.mode = "server"
    generation.logprobs = 0
    generation.generation_kwargs = {}
    generation.structured_outputs_regex = None
    generation.temperature = generation.top_p = generation.repetition_penalty = 1
    generation.top_k = 0
    generation.min_p = None
    generation.max_completion_length = 8
    generation.accelerator = accelerator

    def generate(prompts: list[list[int]], n: int, **_: Any) -> dict[str, Any]:
        made = [answer_of(prompt) for prompt in prompts for _ in range(n)]
        scores = [[[0.0]] * len(ids) for ids in made]
        return {"prompt_ids": prompts, "completion_ids": made, "logprobs": scores}

    generation.vllm_client = SimpleNamespace(generate=generate)

    def single_turn(rows: list[list[int]], images: None, fields: Any, group: int) -> Any:
        _, made, scores, _ = generation.generate(rows, None, group)
        logprobs = []
        for row in scores:
            logprobs.append([one[0] for one in row])
        return made, logprobs

    from trainer.runs.distributed import collect_from_ranks

    # The first process's chains pass at once but for one; the second's never do.
    def passes(one: Submission) -> Graded:
        return verdict_of(one, passed=rank == 0 and one.prompt != TASKS[3])

    async_loop = _loop()
    trainer = SimpleNamespace(
        processing_class=LetterTokenizer(),
        eos_token_ids=[END],
        chat_template=None,
        chat_template_kwargs=None,
        num_generations=2,
        max_completion_length=8,
        async_loop=async_loop,
        state=SimpleNamespace(global_step=0),
        model=SimpleNamespace(config=SimpleNamespace()),
        _tokenize_prompts=lambda prompts: (
            [[10 + 4 * rank + int(one[1])] for one in prompts],
            None,
            {},
        ),
        _generate_single_turn=single_turn,
    )
    rollout = Rollout(TurnsConfig(max=3), judge(verdict=passes), "")
    rollout.prepare(trainer)
    rollout.tasks = [name for name in (TASKS[1], TASKS[3]) for _ in range(2)]
    rollout(list(rollout.tasks), trainer)
    right = [
        chain.ids_T[turn.start : turn.end]
        == answer_of(chain.prompt_ids + chain.ids_T[: turn.start])
        for chain in rollout.chains
        for turn in chain.turns
    ]
    numbers = [len(chain.turns) for chain in rollout.chains]
    rows = [[20 + 8 * rank + n] for n in range(3 + 2 * rank)]
    upstream = [
        made == answer_of(row)
        for row, made in zip(rows, single_turn(rows, None, {}, 1)[0], strict=False)
    ]
    told = collect_from_ranks({"turns": numbers, "right": all(right), "upstream": upstream})
    if rank == 0:
        print(json.dumps(told), flush=True)
    torch.distributed.destroy_process_group()


def verdict_of(one: Submission, *, passed: bool) -> Graded:
    made = verdict(one.model_copy(update={"completion": "x"}))
    assert isinstance(made, Graded)
    tests = TestCount(passed=5 * passed, total=5)
    return made.model_copy(update={"passed": passed, "reward": float(passed), "tests": tests})


def _loop() -> Any:
    import asyncio
    import threading

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


if __name__ == "__main__":
    ranks()
