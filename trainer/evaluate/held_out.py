"""Measures a model on the held-out tasks during a run, as `gradus eval` does; the figures stay in
the run folder.

Completions are written by the run's generation server, if it has one, else by all processes of the
run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any

from transformers import TrainerCallback

from gradus.descriptions import GraderDescription
from gradus.errors import Misuse
from trainer.config.run import TrainConfig
from trainer.data.prompts import encode_prompt
from trainer.data.tasks import Tasks
from trainer.evaluate.collect import collect, collect_turns, refuse_turns
from trainer.evaluate.completion_store import Completions
from trainer.evaluate.grader_backend import ServiceJudge
from trainer.evaluate.local import LocalModel, generate_batch, get_end_tokens
from trainer.evaluate.plan import (
    CompletionRequest,
    CompletionSource,
    EvalPlan,
    GeneratedCompletion,
    Key,
    Outcome,
    build_problems,
    build_requests,
    make_plan,
    split_batches,
)
from trainer.evaluate.results import build_evaluation, describe_evaluation, write_outcome
from trainer.rewards.judge import GradingStopped, Record, describe_faults
from trainer.rewards.judges import create_client
from trainer.runs.context import RunContext
from trainer.runs.distributed import (
    collect_from_ranks,
    count_processes,
    is_any_rank_true,
    is_leader,
    run_on_all_ranks,
    select_share,
)

BEFORE, AFTER = "before", "after"


class HeldOutEvalCallback(TrainerCallback):  # type: ignore[misc]
    """Measures before the first step, every so many steps, and after the last."""

    def __init__(self, run: RunContext[TrainConfig, Tasks], tokenizer: Any, trainer: Any) -> None:
        """`trainer` is TRL's. Raises Misuse for settings that make no sense."""
        config = run.config
        settings = run.config.evaluation
        self._run = run
        self._tokenizer = tokenizer
        self._trainer = trainer
        self.pass_rates: list[float] = []
        """pass@1 of each measurement by this process, sampled where there are samples; empty in the
        others."""
        self._served = bool(trainer.use_vllm and trainer.vllm_mode == "server")
        examples = run.data.held_out[: settings.limit]
        for example in examples:
            _ = example.task_for_grading  # raises for a bare prompt
        self._problems = build_problems(examples, config.prompt)
        self._plan: EvalPlan | None = None
        turns = settings.turns or (1 if config.turns is None else config.turns.max)
        if turns > 1 and not self._served and count_processes() > 1:
            if settings.turns is not None:
                raise Misuse(
                    "evaluation.turns needs one process or a vLLM server: each process would have"
                    " other chains"
                )
            turns = 1
        if self._problems and (settings.samples or settings.greedy):
            self._plan = make_plan(
                self._problems,
                config.prompt,
                model=config.model.name,
                served=self._served,
                tasks=config.data.eval_dataset or config.data.dataset,
                grader=config.reward.judge,
                rubric=config.reward.rubric,
                samples=settings.samples,
                temperature=settings.temperature,
                greedy=settings.greedy,
                max_new_tokens=trainer.max_completion_length,
                seed=config.seed,
                turns=turns,
            )

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        every = self._run.config.evaluation.every_steps
        if every and state.global_step % every == 0 and state.global_step < state.max_steps:
            self.measure(model, f"step-{state.global_step}")

    def measure(self, model: Any, name: str) -> None:
        """Measure and write `eval/<name>.json`, unless it is there. All processes of a run come
        here together.

        Raises GradingStopped when nothing was graded, and GenerationStopped when the generation
        server is gone.
        """
        plan = self._plan
        if plan is None or not is_any_rank_true(
            is_leader() and not (self._run.folder.evaluations / f"{name}.json").exists()
        ):
            return
        size = self._run.config.evaluation.batch_size
        local_model = LocalModel(lambda: (model, self._tokenizer), plan, size)
        source: CompletionSource = local_model
        if self._served:
            self._trainer.vllm_generation.sync_weights()
            self._trainer._last_loaded_step = (
                self._trainer.state.global_step
            )  # TRL need not send them again
            source = GenerationServer(
                self._trainer, get_end_tokens(model, self._tokenizer), self._tokenizer, plan, size
            )
        elif count_processes() > 1:
            source = SharedModel(local_model, build_requests(self._problems, plan), size)
        run_on_all_ranks(lambda: self._measure(source, name, plan) if is_leader() else None)

    def _measure(self, source: CompletionSource, name: str, plan: EvalPlan) -> None:
        run = self._run
        started = time.monotonic()
        description, records, later = asyncio.run(self._collect(source, plan))
        if not any(record["status"] == "graded" for record in records):
            raise GradingStopped(
                f"measuring held-out tasks: none of {len(records)} samples could be graded. "
                + describe_faults(
                    run.config.reward, [record["fault"] or record["error"] for record in records]
                )
            )
        evaluation = build_evaluation(
            records,
            plan,
            description,
            name=name,
            duration_s=time.monotonic() - started,
            later=later,
        )
        write_outcome(run.folder.evaluations, evaluation, records, later)
        self.pass_rates += [
            measurement.pass_at[1].value
            for measurement in evaluation.measurements
            if 1 in measurement.pass_at
        ][:1]
        run.log(f"held-out tasks, {name}: {'; '.join(describe_evaluation(evaluation))}")

    async def _collect(
        self, source: CompletionSource, plan: EvalPlan
    ) -> tuple[GraderDescription, list[Record], list[Record]]:
        """Return the grader's description, the first answers, and those of later turns."""
        config = self._run.config
        client = create_client(config.reward)
        judge = ServiceJudge(client, config.reward.judge, deadline_s=config.reward.deadline_s)
        async with client:
            description = await judge.description()
            refuse_turns(description, plan.turns)
            records = await collect(source, judge, self._problems, plan, Completions())
            later = await collect_turns(source, judge, self._problems, records, plan, Completions())
            return description, records, later


class SharedModel:
    """A `Source` of the model in all processes: each writes its share of the batches, and each then
    has all of them.

    Batches and their seeds are those of one process, so the number of processes does not change the
    completions.
    """

    def __init__(
        self, model: LocalModel, asks: Sequence[CompletionRequest], batch_size: int
    ) -> None:
        """Writes at once. All processes of the run must come here together."""
        batches = select_share([*split_batches(asks, batch_size)])
        outcomes = run_on_all_ranks(
            lambda: list(chain.from_iterable(map(model.write_batch, batches)))
        )
        shares = collect_from_ranks([(ask.key, outcome) for ask, outcome in outcomes])
        self._outcomes: dict[Key, Outcome] = dict(chain.from_iterable(shares))

    async def write(
        self, asks: Sequence[CompletionRequest], keys: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        for ask in asks:
            if ask.key in keys:
                yield ask, self._outcomes[ask.key]


class GenerationServer:
    """A `Source` of the run's vLLM server, which has the weights of this step."""

    def __init__(
        self, trainer: Any, ends: frozenset[int], tokenizer: Any, plan: EvalPlan, batch_size: int
    ) -> None:
        """`ends` are the tokens that end a completion."""
        self._client = trainer.vllm_generation.vllm_client
        self._served = trainer.served
        self._ends = ends
        self._tokenizer = tokenizer
        self._plan = plan
        self._batch_size = batch_size

    async def write(
        self, asks: Sequence[CompletionRequest], keys: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        if self._served is not None:
            # These are no completions of a training step.
            self._served.on_group = lambda index, group: None
        server_info = await asyncio.to_thread(self._client.get_server_info)
        room = (server_info.get("model_config") or {}).get("max_model_len")
        reserve = self._plan.max_new_tokens
        template = self._plan.chat_template_kwargs
        for batch in split_batches([ask for ask in asks if ask.key in keys], self._batch_size):
            generation = asyncio.to_thread(
                generate_batch, batch, self._tokenizer, self._generate, room, reserve, template
            )
            for pair in await generation:
                yield pair
        if self._served is not None:
            # A sync, and its proof, are reported with the next step.
            self._served.metrics.pop("generate_s", None)

    def _generate(self, asks: Sequence[CompletionRequest], seed: int) -> list[GeneratedCompletion]:
        """Return one completion of each prompt, from the whole distribution; the server draws by a
        seed of its own."""
        max_tokens = self._plan.max_new_tokens
        template = self._plan.chat_template_kwargs
        prompts = [encode_prompt(self._tokenizer, ask.prompt, template=template) for ask in asks]
        neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
        response = self._client.generate(
            prompts, n=1, temperature=asks[0].temperature, max_tokens=max_tokens, **neutral
        )
        drawn = []
        for prompt, ids in zip(prompts, response["completion_ids"], strict=True):
            text = self._tokenizer.decode(ids, skip_special_tokens=True)
            reason = "stop" if len(ids) < max_tokens or ids[-1] in self._ends else "length"
            drawn.append(GeneratedCompletion(text, reason, len(prompt), len(ids), 0.0))
        return drawn
