"""`gradus chat`: a conversation with a model on the terminal; with a task, the grader's verdict
follows each answer."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from gradus.contract import Faulted, Graded, GraderName
from gradus.errors import Misuse
from gradus.feedback import render_verdict, single_block
from trainer.config.run import ModelConfig
from trainer.data.prompts import Prompt, render_text
from trainer.evaluate.collect import continued, submission_of
from trainer.evaluate.grader_backend import Judge
from trainer.evaluate.plan import (
    CompletionRequest,
    GenerationError,
    Mode,
    Outcome,
    Problem,
    problems_of,
    seed_of,
)
from trainer.evaluate.setup import (
    SamplingOptions,
    config_of,
    examples_of,
    plan_of,
    prompt_config,
    rubric_of,
    source_of,
    with_model,
)
from trainer.models.loading import load_tokenizer
from trainer.rewards.judge import with_opening


def main(
    asked: SamplingOptions, tasks: Path | None, task: str | None, judge: Judge, rubric: str | None
) -> int:
    """Talk to a model until the input ends. A task of `tasks` (the first, or the one of id `task`)
    is its first prompt.

    Returns 0. Raises Misuse for options that do not fit, and QueueFault when model or grader are
    away.
    """
    if task is not None and tasks is None:
        raise Misuse("--task needs --tasks, the file that it is in")
    asked, trained_with = asyncio.run(with_model(asked)), config_of(asked)
    if asked.server is None and asked.chat is None and trained_with is None:
        tokenizer = load_tokenizer(str(asked.model), ModelConfig(name=str(asked.model)))
        asked = asked.model_copy(update={"chat": tokenizer.chat_template is not None})
    prompt = prompt_config(asked, trained_with)
    problem = Problem("chat", "", None)
    name: GraderName | None = None
    if tasks is not None:
        name = asyncio.run(judge.known(judge.grader))
        problems = problems_of(examples_of(tasks, name, asked, trained_with), prompt)
        found = [one for one in problems if task in (None, one.id)]
        if not found:
            raise Misuse(f"{tasks}: there is no task {task}")
        problem = found[0]
        rubric = rubric or rubric_of(trained_with, name)
    plan = plan_of(
        asked, tasks.name if tasks else "chat", [problem], prompt, grader=name, rubric=rubric
    )
    source = source_of(asked, plan, trained_with)
    mode: Mode = "greedy" if asked.temperature == 0 else "sampled"

    async def outcome_of(said: Prompt, turn: int) -> Outcome:
        seed = seed_of(plan.seed, mode, problem.id, turn)
        request = CompletionRequest(mode, problem, 0, asked.temperature, seed, turn, said)
        return [outcome async for _, outcome in source.write([request], {request.key})][0]

    said: Prompt = problem.prompt
    answer = ""
    if said:
        print(problem.text)
    for turn in itertools.count(1):
        if turn > 1 or not said:
            try:
                line = input("\n> ")
            except EOFError:
                print()
                return 0
            said = continued(said, answer, line) if said else render_text(prompt, line)
        outcome = asyncio.run(outcome_of(said, turn))
        if isinstance(outcome, GenerationError):
            raise Misuse(f"no answer ({outcome.kind}): {outcome.message}")
        print(f"\n{outcome.text}", flush=True)
        answer = with_opening(plan.opening, outcome.text)
        if name is not None:
            submission = submission_of(problem, answer, str(turn))
            result = asyncio.run(judge.grade([submission], rubric))[0]
            print(f"\n{_told(result, name, answer)}", flush=True)
    raise AssertionError


def _told(result: Graded | Faulted, name: GraderName, completion: str) -> str:
    if isinstance(result, Faulted):
        return f"[fault: {result.fault.kind}: {result.fault.message}]"
    head = (
        f"[reward {result.reward:.3f}, {'passed' if result.passed else 'did not pass'}, stage"
        f" {result.stage.value}]"
    )
    return f"{head}\n{render_verdict(result, single_block(name, completion))}"
