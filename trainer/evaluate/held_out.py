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
from typing import Any

from transformers import TrainerCallback

from gradus.descriptions import GraderDescription
from gradus.errors import GradusError, Misuse
from trainer.config.run import TrainConfig
from trainer.data.prompts import token_ids
from trainer.data.tasks import Tasks
from trainer.evaluate.collect import collect, collect_turns, refuse_turns
from trainer.evaluate.completion_store import Completions
from trainer.evaluate.grader_backend import ServiceJudge
from trainer.evaluate.local import LocalModel, ends_of, written_batch
from trainer.evaluate.plan import (
    CompletionRequest,
    CompletionSource,
    EvalPlan,
    GeneratedCompletion,
    Key,
    Outcome,
    asks_of,
    batches_of,
    make_plan,
    problems_of,
)
from trainer.evaluate.results import described, evaluation_of, write_outcome
from trainer.rewards.judge import GradingStopped, Record, advice
from trainer.rewards.judges import client_of
from trainer.runs.context import RunContext
from trainer.runs.distributed import any_rank_true, count_processes, gathered, is_leader, share_of

BEFORE, AFTER = "before", "after"


class HeldOutEvalCallback(TrainerCallback):  # type: ignore[misc]
    """Measures before the first step, every so many steps, and after the last."""

    def __init__(self, run: RunContext[TrainConfig, Tasks], tokenizer: Any, trainer: Any) -> None:
        """`trainer` is TRL's. Raises Misuse for settings that make no sense."""
        config = run.config
        asked = run.config.evaluation
        self._run = run
        self._tokenizer = tokenizer
        self._trainer = trainer
        self.pass_rates: list[float] = []
        """pass@1 of each measurement by this process, sampled where there are samples; empty in the
        others."""
        self._served = bool(trainer.use_vllm and trainer.vllm_mode == "server")
        examples = run.data.held_out[: asked.limit]
        for example in examples:
            _ = example.task_for_grading  # raises for a bare prompt
        self._problems = problems_of(examples, config.prompt)
        self._plan: EvalPlan | None = None
        turns = asked.turns or (1 if config.turns is None else config.turns.max)
        if turns > 1 and not self._served and count_processes() > 1:
            if asked.turns is not None:
                raise Misuse(
                    "evaluation.turns needs one process or a vLLM server: each process would have"
                    " other chains"
                )
            turns = 1
        if self._problems and (asked.samples or asked.greedy):
            self._plan = make_plan(
                self._problems,
                config.prompt,
                model=config.model.name,
                served=self._served,
                tasks=config.data.eval_dataset or config.data.dataset,
                grader=config.reward.judge,
                rubric=config.reward.rubric,
                samples=asked.samples,
                temperature=asked.temperature,
                greedy=asked.greedy,
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
        if plan is None or not any_rank_true(
            is_leader() and not (self._run.folder.evaluations / f"{name}.json").exists()
        ):
            return
        size = self._run.config.evaluation.batch_size
        here = LocalModel(lambda: (model, self._tokenizer), plan, size)
        source: CompletionSource = here
        if self._served:
            self._trainer.vllm_generation.sync_weights()
            self._trainer._last_loaded_step = (
                self._trainer.state.global_step
            )  # TRL need not send them again
            source = GenerationServer(
                self._trainer, ends_of(model, self._tokenizer), self._tokenizer, plan, size
            )
        elif count_processes() > 1:
            source = SharedModel(here, asks_of(self._problems, plan), size)
        stopped: GradusError | None = None
        if is_leader():
            try:
                self._measure(source, name, plan)
            except GradusError as error:
                stopped = error
        if any_rank_true(stopped is not None):
            raise stopped or GradingStopped(
                "measuring held-out tasks stopped in the first process; see its log"
            )

    def _measure(self, source: CompletionSource, name: str, plan: EvalPlan) -> None:
        run = self._run
        started = time.monotonic()
        description, records, later = asyncio.run(self._collected(source, plan))
        if not any(record["status"] == "graded" for record in records):
            raise GradingStopped(
                f"measuring held-out tasks: none of {len(records)} samples could be graded. "
                + advice(
                    run.config.reward, [record["fault"] or record["error"] for record in records]
                )
            )
        evaluation = evaluation_of(
            records,
            plan,
            description,
            name=name,
            duration_s=time.monotonic() - started,
            later=later,
        )
        write_outcome(run.folder.evaluations, evaluation, records, later)
        self.pass_rates += [
            one.pass_at[1].value for one in evaluation.measurements if 1 in one.pass_at
        ][:1]
        run.say(f"held-out tasks, {name}: {'; '.join(described(evaluation))}")

    async def _collected(
        self, source: CompletionSource, plan: EvalPlan
    ) -> tuple[GraderDescription, list[Record], list[Record]]:
        """The grader's description, the first answers, and those of later turns."""
        config = self._run.config
        client = client_of(config.reward)
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
        made = []
        for batch in share_of([*batches_of(asks, batch_size)]):
            made += model.written(batch)
        shares = gathered([(ask.key, outcome) for ask, outcome in made])
        self._outcomes: dict[Key, Outcome] = dict(pair for share in shares for pair in share)

    async def write(
        self, asks: Sequence[CompletionRequest], wanted: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        for ask in asks:
            if ask.key in wanted:
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
        self, asks: Sequence[CompletionRequest], wanted: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        if self._served is not None:
            # These are no completions of a training step.
            self._served.on_group = lambda index, group: None
        said = await asyncio.to_thread(self._client.get_server_info)
        room = (said.get("model_config") or {}).get("max_model_len")
        least = self._plan.max_new_tokens
        template = self._plan.chat_template_kwargs
        for batch in batches_of([ask for ask in asks if ask.key in wanted], self._batch_size):
            made = asyncio.to_thread(
                written_batch, batch, self._tokenizer, self._drawn, room, least, template
            )
            for found in await made:
                yield found
        if self._served is not None:
            # A sync, and its proof, are reported with the next step.
            self._served.metrics.pop("generate_s", None)

    def _drawn(self, asks: Sequence[CompletionRequest], seed: int) -> list[GeneratedCompletion]:
        """One completion of each prompt, from the whole distribution; the server draws by a seed of
        its own."""
        most = self._plan.max_new_tokens
        template = self._plan.chat_template_kwargs
        prompts = [token_ids(self._tokenizer, ask.prompt, template=template) for ask in asks]
        neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
        made = self._client.generate(
            prompts, n=1, temperature=asks[0].temperature, max_tokens=most, **neutral
        )
        drawn = []
        for prompt, ids in zip(prompts, made["completion_ids"], strict=True):
            text = self._tokenizer.decode(ids, skip_special_tokens=True)
            reason = "stop" if len(ids) < most or ids[-1] in self._ends else "length"
            drawn.append(GeneratedCompletion(text, reason, len(prompt), len(ids), 0.0))
        return drawn
