"""GRPO and RLOO on the rewards of judges: an optional warm start, then TRL's loop between
measurements.

Generation is in this process or on a vLLM server, as `generation` says (`trainer.generation`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trl import GRPOConfig, RLOOConfig

from gradus.errors import Misuse, QueueFault
from gradus.local import LocalGrader
from trainer.config.device import Device, weights_dtype, with_device_defaults
from trainer.config.run import RewardConfig, SplitSource, StopWhen, TrainConfig
from trainer.config.stages import SftStage
from trainer.data.prompts import Prompt, render, token_ids
from trainer.data.tasks import Example, Tasks, load_tasks
from trainer.evaluate.held_out import AFTER, BEFORE, HeldOutEvalCallback
from trainer.evaluate.report import write_comparisons
from trainer.generation.backend import generating, refuse_without_vllm, vllm_options
from trainer.generation.client import GenerationState
from trainer.models.loading import load_trained
from trainer.rewards.judge import CompletionsFile, GradingStopped, start_hint
from trainer.rewards.judges import Judges, client_of, open_reward_model, refuse_headless, weights_of
from trainer.rollouts.rollout import Rollout
from trainer.runs.checkpoints import SaveAtRoundEnd
from trainer.runs.collapse import CollapseWatch
from trainer.runs.context import RunContext
from trainer.runs.distributed import is_leader, wait_for_all
from trainer.runs.folder import (
    RunFolder,
    Say,
    append_lines,
    checkpoint_to_resume,
    step_of,
    written_whole,
)
from trainer.runs.progress import MetricsFile, StepClock, grpo_summary
from trainer.stages.base import Stage
from trainer.stages.grpo import GradusTrainer, refuse_wrong_refill
from trainer.stages.online import GradusRlooTrainer, noting
from trainer.stages.rows import Sft
from trainer.stages.turns import TurnsTrainer, refuse_wrong_turns

RlRun = RunContext[TrainConfig, Tasks]
TRAINERS = {"grpo": GradusTrainer, "rloo": GradusRlooTrainer}


class Rl(Stage[TrainConfig, Tasks]):
    DEFAULTS = {"logging_steps": 1, "save_steps": 50, "report_to": "none", "disable_dropout": True}
    """Steps are slow, so each is logged and saving comes often. With dropout, the policy that
    samples is another than the one that learns: on the first update of a round, the ratio of their
    probabilities must be 1."""
    SUMMARY = staticmethod(grpo_summary)
    DATA = "tasks"

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.OPTIONS_CLASS = {"grpo": GRPOConfig, "rloo": RLOOConfig}[config.stage]  # type: ignore[misc]
        self._models: list[LocalGrader] = []
        """Opened once, however often memory runs out."""
        self._served: GenerationState | None = None

    # ---------------------------------------------------------------------------------------- data

    def read(self) -> Tasks:
        return load_tasks(self.config.data, self.config.reward.grader, self.config.seed)

    def described(self, data: Tasks) -> str:
        said = f"{len(data.train)} tasks to train on, {len(data.held_out)} held out"
        if data.skipped:
            said += (
                f"; {len(data.skipped)} rows cannot be used and are left out, the first:"
                f" {data.skipped[0]}"
            )
        return said

    def lengths_found(self, tokenizer: Any, window: int | None) -> list[str]:
        self._refuse_without_template(tokenizer, self.config.model.name)
        kept, left_out = self._fitting(self.read().train, tokenizer)
        options = self.config.options
        completion = options.get("max_completion_length", self.OPTIONS_CLASS.max_completion_length)
        room = min(window or math.inf, options.get("vllm_max_model_length") or math.inf)
        most = max(kept.values())
        if too_long := sum(length + completion > room for length in kept.values()):
            raise Misuse(
                f"data.max_prompt_tokens: {too_long} prompts, the longest of {most} tokens,"
                f" leave no room for max_completion_length {completion} in the {room} tokens that"
                f" the model takes; set it to {room - completion} at most"
            )
        return [f"prompts of at most {most} tokens", *left_out]

    def texts(self, data: Tasks) -> Iterable[str]:
        stage = self.warm_start_stage(self.config.output_dir)
        return stage.texts(stage.read()) if stage is not None else ()

    def record(self, run: RlRun) -> None:
        for file, examples in (
            (run.folder.train_tasks, run.data.train),
            (run.folder.held_out_tasks, run.data.held_out),
        ):
            rows = []
            for one in examples:
                row: dict[str, Any] = {"id": one.id, "kind": one.kind}
                row |= {"prompt": one.prompt, "solution": one.solution}
                if one.task is not None:
                    row["task"] = one.task.model_dump(mode="json", exclude_defaults=True)
                rows.append(row)
            file.unlink(missing_ok=True)
            append_lines(file, rows)

    # ------------------------------------------------------------------------------------- options

    def options(self, device: Device, say: Say) -> dict[str, Any]:
        asked = self.config.options
        by_vllm = vllm_options(self.config.generation, asked, self.config.stage)
        in_order: dict[str, Any] = {}
        if self.config.data.order != "shuffled":
            in_order["shuffle_dataset"] = False
            if asked.get("shuffle_dataset"):
                raise Misuse(
                    f"{self.config.stage}.shuffle_dataset: data.order: {self.config.data.order}"
                    " forbids it"
                )
        return with_device_defaults({**self.DEFAULTS, **asked, **in_order, **by_vllm}, device, say)

    def check(self, data: Tasks, options: Mapping[str, Any], device: Device) -> str:
        """Raises Misuse for combinations that TRL refuses, or that leave it without a whole
        batch."""
        refuse_without_vllm(self.config.generation, options, device)
        made = self.rl_arguments(options, Path("."), len(data.train))
        refuse_wrong_turns(self.config, made)
        refuse_wrong_refill(self.config, made)
        rules = self.config.stop_when
        if made.beta == 0 and (rules.kl or rules.kl_warning):
            raise Misuse(
                f"stop_when.kl and kl_warning need {self.config.stage}.beta above 0: without it"
                " there is no KL"
            )
        if rules.held_out_flat and not (data.held_out and self.config.evaluation.every_steps):
            raise Misuse(
                "stop_when.held_out_flat needs held-out tasks (data.held_out) and"
                " evaluation.every_steps"
            )
        prompts = made.generation_batch_size // made.num_generations
        return f"{prompts} prompts x {made.num_generations} completions per generation"

    def rl_arguments(self, options: Mapping[str, Any], output_dir: Path, tasks: int) -> Any:
        """TRL's object. Raises Misuse for a batch of more tasks than there are."""
        template = self.config.prompt.chat_template_kwargs or None
        weights = weights_of(self.config.reward)
        made = self.arguments(
            options, output_dir, reward_weights=weights, chat_template_kwargs=template
        )
        wanted = made.generation_batch_size // made.num_generations
        if tasks < wanted:
            raise Misuse(
                f"{self.config.stage}: one round of generation takes {wanted} different tasks"
                f" (generation_batch_size {made.generation_batch_size} / num_generations"
                f" {made.num_generations}), and there are only {tasks}; lower"
                " per_device_train_batch_size or generation_batch_size"
            )
        return made

    # ---------------------------------------------------------------------- warm start

    def begin(self, run: RlRun, start: str) -> str:
        """Waits for the graders and trains the warm start."""
        reward = self.config.reward
        refuse_headless(reward.models)
        if reward.grader is not None:
            _await_grader(reward, run.say)
        run.wish.raise_if_made()
        return self.warm_start(run, start)

    def warm_start(self, run: RlRun, start: str) -> str:
        """Where the model after the stage `sft` lies; trained from `start` unless it is there
        already.

        Adapters come merged into their base model. Raises StopRequested when a signal ended it; the
        next run resumes from its last checkpoint if `save_strategy` made any, else from its
        beginning.
        """
        target = run.folder.warm_start
        folder = RunFolder(run.folder.path / "warm_start.checkpoints")
        stage = self.warm_start_stage(folder.path)
        if stage is None:
            return start
        if not target.exists():
            folder.metrics = run.folder.sft_metrics
            checkpoint = checkpoint_to_resume(folder.path, "auto", run.say)
            if is_leader():
                folder.path.mkdir(parents=True, exist_ok=True)
                folder.forget_after(step_of(checkpoint))
            wait_for_all()
            run.say(f"warm start: supervised training from {start}")
            options = stage.options(run.device, run.say)
            inner = RunContext(
                stage.config,
                options,
                stage.read(),
                run.device,
                folder,
                run.wish,
                run.say,
                checkpoint,
            )
            stage.fit(inner, start)
            if is_leader():
                self._merge(folder.final, target, run.device)
                shutil.rmtree(folder.path, ignore_errors=True)
            wait_for_all()
        return str(target)

    def warm_start_stage(self, folder: Path) -> Sft | None:
        """The stage `sft` on the run's worked answers: its prompts are rendered as those of the
        tasks."""
        config = self.config
        asked = config.warm_start
        if asked is None:
            return None
        rows = SplitSource.model_validate(asked.model_dump(exclude={"sft"}))
        return Sft(
            SftStage(
                model=config.model,
                lora=config.lora,
                on_out_of_memory=config.on_out_of_memory,
                seed=config.seed,
                output_dir=folder,
                data=rows,
                prompt=config.prompt,
                sft={"completion_only_loss": True, "save_strategy": "no", **asked.sft},
            )
        )

    def _merge(self, trained: Path, target: Path, device: Device) -> None:
        """One whole model in `target`. Adapters on quantized weights go into the weights before
        quantization."""
        if self.config.lora is not None:
            whole = self.config.model.model_copy(update={"load_in_4bit": False})
            model, tokenizer = load_trained(
                trained, whole, weights_dtype(device, whole.dtype, frozen=True)
            )
            with written_whole(target) as folder:
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
        else:
            trained.rename(target)

    # ------------------------------------------------------------------------------------- trainer

    def train_once(self, run: RlRun, start: str, tokenizer: Any) -> None:
        self._refuse_without_template(tokenizer, start)
        with generating(self.config.generation, run.folder, run.say) as self._served:
            super().train_once(run, start, tokenizer)

    def _refuse_without_template(self, tokenizer: Any, name: str) -> None:
        if self.config.prompt.style == "chat" and not tokenizer.chat_template:
            raise Misuse(
                f"prompt.style: the tokenizer of {name} has no chat template; use style: plain"
            )

    def make_trainer(self, run: RlRun, start: str, tokenizer: Any) -> Any:
        from datasets import Dataset

        config = self.config
        clock = StepClock()
        # TRL prints a whole row for every fault; we count faults and record them.
        logging.getLogger(f"trl.trainer.{config.stage}_trainer").addFilter(
            lambda record: "All reward functions returned None" not in record.getMessage()
        )
        file = CompletionsFile(run.folder.completions)
        kept, left_out = self._fitting(run.data.train, tokenizer)
        examples = [one for one in run.data.train if one.id in kept]
        for line in left_out:
            run.say(line)
        self._models = self._models or [
            open_reward_model(model, run.device) for model in config.reward.models
        ]
        judges = Judges(
            config.reward,
            {one.id: one for one in examples},
            config.prompt,
            file=file,
            grading=clock.grading,
        ).all(self._models)
        stops: list[str] = []
        rollout = None
        build: Callable[..., Any]
        if config.turns is not None:
            rollout = Rollout(config.turns, judges[0], config.prompt.opening)
            build = partial(
                TurnsTrainer,
                reward_funcs=[noting(rollout.rewards, judges[0].name, stops)],
                rollout_func=rollout,
            )
        else:
            build = partial(
                TRAINERS[config.stage],
                reward_funcs=[noting(one.rewards, one.name, stops) for one in judges],
            )
        trainer = self.made(
            run,
            build,
            start,
            callbacks=[clock],
            metrics=MetricsFile(run.folder.metrics, grpo_summary, clock),
            args=self.rl_arguments(run.options, run.folder.path, len(examples)),
            # Only prompts and ids: tests stay out of TRL's tables and warnings.
            train_dataset=Dataset.from_list(
                [{"prompt": self._rendered(one), "prompt_id": one.id} for one in examples]
            ),
            processing_class=tokenizer,
        )
        graders = len(judges) - len(config.reward.models)
        trainer.asked_early = judges[:graders] if config.reward.early else ()
        trainer.stops = stops
        trainer.completions_file = file
        trainer.served = self._served
        trainer.refill_rounds = config.task_sampling.refill
        if rollout is not None:
            rollout.prepare(trainer)
            trainer.weight = config.reward.weight
            trainer.files = (run.folder.completions, run.folder.turns)
        self._held_out = HeldOutEvalCallback(run, tokenizer, trainer)
        if config.stop_when != StopWhen():
            trainer.add_callback(
                CollapseWatch(config.stop_when, run.say, self._held_out.pass_rates)
            )
        trainer.add_callback(SaveAtRoundEnd(trainer.steps_in_round()))
        trainer.add_callback(self._held_out)
        return trainer

    def before_steps(self, run: RlRun, trainer: Any) -> None:
        if run.checkpoint is None:
            self._held_out.measure(trainer.model, BEFORE)
            run.wish.raise_if_made()
        else:
            trainer.resume_from(run.checkpoint)

    def after_steps(self, run: RlRun, trainer: Any) -> None:
        self._held_out.measure(trainer.model, AFTER)
        if is_leader():
            before, after = (run.folder.evaluations / f"{name}.json" for name in (BEFORE, AFTER))
            write_comparisons(before, after, run.folder.comparison)

    def _rendered(self, example: Example) -> Prompt:
        return render(self.config.prompt, example)

    def _fitting(
        self, examples: Sequence[Example], tokenizer: Any
    ) -> tuple[dict[str, int], list[str]]:
        """Tokens of the prompts that are short enough, by task, and a line about those that are
        not. Raises Misuse if none is."""
        limit = self.config.data.max_prompt_tokens or math.inf
        template = self.config.prompt.chat_template_kwargs
        lengths = {}
        for one in examples:
            lengths[one.id] = len(token_ids(tokenizer, self._rendered(one), None, template))
        kept = {name: length for name, length in lengths.items() if length <= limit}
        if not kept:
            raise Misuse(f"data.max_prompt_tokens: every prompt is longer than {limit} tokens")
        left_out = [name for name in lengths if name not in kept]
        if not left_out:
            return kept, []
        named = ", ".join([*left_out[:5], "..."] if len(left_out) > 5 else left_out)
        return kept, [f"{len(left_out)} tasks left out, longer than {limit} tokens: {named}"]


STAGES = {"grpo": Rl, "rloo": Rl}


def _await_grader(reward: RewardConfig, say: Say) -> None:
    """Raises GradingStopped if the grader does not come: better now than after the warm start."""
    try:
        say(f"grading by {ready_grader(reward, reward.ready_timeout_s)}")
    except QueueFault as fault:
        raise GradingStopped(f"{fault.message}\n{start_hint(reward)}") from None


def ready_grader(config: RewardConfig, timeout_s: float) -> str:
    """What will grade. Raises QueueFault if it is not there in time, Misuse for a rubric that it
    does not have."""
    info = asyncio.run(client_of(config).wait_ready(config.judge, timeout_s))
    if config.rubric is not None and config.rubric not in info.rubrics:
        raise Misuse(
            f"reward.rubric: {info.grader} has no {config.rubric}; it has:"
            f" {', '.join(info.rubrics)}"
        )
    rubric = config.rubric or info.rubrics[0]
    return f"{info.grader} at {', '.join(config.urls)}, rubric {rubric}, {info.slots} slots"
