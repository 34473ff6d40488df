"""`gradus chat`: a conversation with a model on the terminal; with a task, the grader's verdict
follows each answer."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from gradus.contract import Faulted, Graded, GraderName
from gradus.errors import Misuse
from gradus.feedback import extract_single_block, render_verdict
from trainer.config.run import ModelConfig
from trainer.data.prompts import Prompt, render_text
from trainer.evaluate.collect import build_submission, extend_conversation
from trainer.evaluate.grader_backend import Judge
from trainer.evaluate.plan import (
    CompletionRequest,
    GenerationError,
    Mode,
    Outcome,
    Problem,
    build_problems,
    compute_seed,
)
from trainer.evaluate.setup import (
    SamplingOptions,
    build_plan,
    create_source,
    get_rubric,
    load_examples,
    resolve_config,
    resolve_model,
    resolve_prompt_config,
)
from trainer.models.loading import load_tokenizer
from trainer.rewards.judge import add_opening


def main(
    options: SamplingOptions, tasks: Path | None, task: str | None, judge: Judge, rubric: str | None
) -> int:
    """Talk to a model until the input ends. A task of `tasks` (the first, or the one of id `task`)
    is its first prompt.

    Returns 0. Raises Misuse for options that do not fit, and QueueFault when model or grader are
    away.
    """
    if task is not None and tasks is None:
        raise Misuse("--task needs --tasks, the file that it is in")
    options, trained_with = asyncio.run(resolve_model(options)), resolve_config(options)
    if options.server is None and options.chat is None and trained_with is None:
        tokenizer = load_tokenizer(str(options.model), ModelConfig(name=str(options.model)))
        options = options.model_copy(update={"chat": tokenizer.chat_template is not None})
    prompt = resolve_prompt_config(options, trained_with)
    problem = Problem("chat", "", None)
    name: GraderName | None = None
    if tasks is not None:
        name = asyncio.run(judge.known(judge.grader))
        problems = build_problems(load_examples(tasks, name, options, trained_with), prompt)
        matches = [candidate for candidate in problems if task in (None, candidate.id)]
        if not matches:
            raise Misuse(f"{tasks}: there is no task {task}")
        problem = matches[0]
        rubric = rubric or get_rubric(trained_with, name)
    plan = build_plan(
        options, tasks.name if tasks else "chat", [problem], prompt, grader=name, rubric=rubric
    )
    source = create_source(options, plan, trained_with)
    mode: Mode = "greedy" if options.temperature == 0 else "sampled"

    async def generate_answer(conversation: Prompt, turn: int) -> Outcome:
        seed = compute_seed(plan.seed, mode, problem.id, turn)
        request = CompletionRequest(mode, problem, 0, options.temperature, seed, turn, conversation)
        return [outcome async for _, outcome in source.write([request], {request.key})][0]

    conversation: Prompt = problem.prompt
    answer = ""
    if conversation:
        print(problem.text)
    for turn in itertools.count(1):
        if turn > 1 or not conversation:
            try:
                line = input("\n> ")
            except EOFError:
                print()
                return 0
            if conversation:
                conversation = extend_conversation(conversation, answer, line)
            else:
                conversation = render_text(prompt, line)
        outcome = asyncio.run(generate_answer(conversation, turn))
        if isinstance(outcome, GenerationError):
            raise Misuse(f"no answer ({outcome.kind}): {outcome.message}")
        print(f"\n{outcome.text}", flush=True)
        answer = add_opening(plan.opening, outcome.text)
        if name is not None:
            submission = build_submission(problem, answer, str(turn))
            result = asyncio.run(judge.grade([submission], rubric))[0]
            print(f"\n{_render_result(result, name, answer)}", flush=True)
    raise AssertionError


def _render_result(result: Graded | Faulted, name: GraderName, completion: str) -> str:
    if isinstance(result, Faulted):
        return f"[fault: {result.fault.kind}: {result.fault.message}]"
    head = (
        f"[reward {result.reward:.3f}, {'passed' if result.passed else 'did not pass'}, stage"
        f" {result.stage.value}]"
    )
    return f"{head}\n{render_verdict(result, extract_single_block(name, completion))}"
