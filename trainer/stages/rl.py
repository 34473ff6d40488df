"""GRPO and RLOO on the rewards of judges: an optional warm start, then TRL's loop between
measurements.

Generation is in this process or on a vLLM server, as `generation` says (`trainer.generation`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trl import GRPOConfig, RLOOConfig

from gradus.errors import GradusError, Misuse, QueueFault
from gradus.local import LocalGrader
from trainer.config.device import Device, apply_device_defaults, select_weights_dtype
from trainer.config.run import RewardConfig, SplitSource, StopWhen, TrainConfig
from trainer.config.stages import SftStage
from trainer.data.prompts import Prompt, encode_prompt, render
from trainer.data.tasks import Example, Tasks, load_tasks
from trainer.evaluate.held_out import AFTER, BEFORE, HeldOutEvalCallback
from trainer.evaluate.report import write_comparisons
from trainer.generation.backend import build_vllm_options, install_generation, refuse_without_vllm
from trainer.generation.client import GenerationState
from trainer.models.loading import load_trained
from trainer.rewards.functions import FunctionReward, load_function
from trainer.rewards.judge import CompletionsFile, GradingStopped, Judge, start_hint
from trainer.rewards.judges import (
    Judges,
    create_client,
    list_weights,
    open_reward_model,
    refuse_headless,
)
from trainer.rollouts.rollout import Rollout
from trainer.runs.checkpoints import SaveAtRoundEnd
from trainer.runs.collapse import CollapseWatch
from trainer.runs.context import RunContext
from trainer.runs.distributed import is_leader, wait_for_all
from trainer.runs.folder import (
    Log,
    RunFolder,
    find_resume_checkpoint,
    read_step,
    replace_nonfinite,
    write_whole,
)
from trainer.runs.progress import MetricsFile, StepClock, grpo_summary
from trainer.stages.ahead import Lookahead, refuse_wrong_ahead
from trainer.stages.base import Stage
from trainer.stages.grpo import GradusTrainer, refuse_wrong_refill
from trainer.stages.online import GradusRlooTrainer, make_reward_function
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

    def describe_data(self, data: Tasks) -> str:
        summary = f"{len(data.train)} tasks to train on, {len(data.held_out)} held out"
        if data.skipped:
            summary += (
                f"; {len(data.skipped)} rows cannot be used and are left out, the first:"
                f" {data.skipped[0]}"
            )
        return summary

    def check_lengths(self, tokenizer: Any, window: int | None) -> list[str]:
        self._refuse_without_template(tokenizer, self.config.model.name)
        lengths, left_out = self._select_fitting(self.read().train, tokenizer)
        options = self.config.options
        completion = options.get("max_completion_length", self.OPTIONS_CLASS.max_completion_length)
        room = min(window or math.inf, options.get("vllm_max_model_length") or math.inf)
        longest = max(lengths.values())
        if too_long := sum(length + completion > room for length in lengths.values()):
            raise Misuse(
                f"data.max_prompt_tokens: {too_long} prompts, the longest of {longest} tokens,"
                f" leave no room for max_completion_length {completion} in the {room} tokens that"
                f" the model takes; set it to {room - completion} at most"
            )
        return [f"prompts of at most {longest} tokens", *left_out]

    def iter_texts(self, data: Tasks) -> Iterable[str]:
        stage = self.build_warm_start(self.config.output_dir)
        return stage.iter_texts(stage.read()) if stage is not None else ()

    def build_records(self, folder: RunFolder, data: Tasks) -> dict[Path, str]:
        records = {}
        for file, examples in (
            (folder.train_tasks, data.train),
            (folder.held_out_tasks, data.held_out),
        ):
            rows = []
            for example in examples:
                row: dict[str, Any] = {"id": example.id, "kind": example.kind}
                row |= {"prompt": example.prompt, "solution": example.solution}
                if example.task is not None:
                    row["task"] = example.task.model_dump(mode="json", exclude_defaults=True)
                rows.append(json.dumps(replace_nonfinite(row), ensure_ascii=False) + "\n")
            records[file] = "".join(rows)
        return records

    # ------------------------------------------------------------------------------------- options

    def options(self, device: Device, log: Log) -> dict[str, Any]:
        settings = self.config.options
        by_vllm = build_vllm_options(self.config.generation, settings, self.config.stage)
        in_order: dict[str, Any] = {}
        if self.config.data.order != "shuffled":
            in_order["shuffle_dataset"] = False
            if settings.get("shuffle_dataset"):
                raise Misuse(
                    f"{self.config.stage}.shuffle_dataset: data.order: {self.config.data.order}"
                    " forbids it"
                )
        return apply_device_defaults(
            {**self.DEFAULTS, **settings, **in_order, **by_vllm}, device, log
        )

    def check(self, data: Tasks, options: Mapping[str, Any], device: Device) -> str:
        """Raise Misuse for combinations that TRL refuses, or that leave it without a whole
        batch."""
        refuse_without_vllm(self.config.generation, options, device)
        args = self.build_rl_arguments(options, Path("."), len(data.train))
        refuse_wrong_turns(self.config, args)
        refuse_wrong_refill(self.config, args)
        refuse_wrong_ahead(self.config, args)
        rules = self.config.stop_when
        if args.beta == 0 and (rules.kl or rules.kl_warning):
            raise Misuse(
                f"stop_when.kl and kl_warning need {self.config.stage}.beta above 0: without it"
                " there is no KL"
            )
        if rules.held_out_flat and not (data.held_out and self.config.evaluation.every_steps):
            raise Misuse(
                "stop_when.held_out_flat needs held-out tasks (data.held_out) and"
                " evaluation.every_steps"
            )
        for function in self.config.reward.functions:
            load_function(function)
        prompts = args.generation_batch_size // args.num_generations
        return f"{prompts} prompts x {args.num_generations} completions per generation"

    def build_rl_arguments(self, options: Mapping[str, Any], output_dir: Path, tasks: int) -> Any:
        """Return TRL's object. Raises Misuse for a batch of more tasks than there are."""
        template = self.config.prompt.chat_template_kwargs or None
        weights = list_weights(self.config.reward)
        args = self.build_arguments(
            options, output_dir, reward_weights=weights, chat_template_kwargs=template
        )
        needed = args.generation_batch_size // args.num_generations
        if tasks < needed:
            raise Misuse(
                f"{self.config.stage}: one round of generation takes {needed} different tasks"
                f" (generation_batch_size {args.generation_batch_size} / num_generations"
                f" {args.num_generations}), and there are only {tasks}; lower"
                " per_device_train_batch_size or generation_batch_size"
            )
        return args

    # ---------------------------------------------------------------------- warm start

    def prepare_start(self, run: RlRun, start: str) -> str:
        """Waits for the graders and trains the warm start."""
        reward = self.config.reward
        refuse_headless(reward.models)
        if reward.grader is not None:
            _await_grader(reward, run.log)
        run.wish.raise_if_made()
        return self.warm_start(run, start)

    def warm_start(self, run: RlRun, start: str) -> str:
        """Return where the model after the stage `sft` lies; trained from `start` unless it is
        there already.

        Adapters come merged into their base model. Raises StopRequested when a signal ended it; the
        next run resumes from its last checkpoint if `save_strategy` made any, else from its
        beginning.
        """
        target = run.folder.warm_start
        folder = RunFolder(run.folder.path / "warm_start.checkpoints")
        stage = self.build_warm_start(folder.path)
        if stage is None:
            return start
        if not target.exists():
            folder.metrics = run.folder.sft_metrics
            checkpoint = find_resume_checkpoint(folder.path, "auto", run.log)
            if is_leader():
                folder.path.mkdir(parents=True, exist_ok=True)
                folder.drop_after(read_step(checkpoint))
            wait_for_all()
            run.log(f"warm start: supervised training from {start}")
            options = stage.options(run.device, run.log)
            inner = RunContext(
                stage.config,
                options,
                stage.read(),
                run.device,
                folder,
                run.wish,
                run.log,
                checkpoint,
            )
            stage.train_with_retries(inner, start)
            if is_leader():
                self._merge(folder.final, target, run.device)
                shutil.rmtree(folder.path, ignore_errors=True)
            wait_for_all()
        return str(target)

    def build_warm_start(self, folder: Path) -> Sft | None:
        """Return the stage `sft` on the run's worked answers: its prompts are rendered as those of
        the tasks."""
        config = self.config
        warm_start = config.warm_start
        if warm_start is None:
            return None
        rows = SplitSource.model_validate(warm_start.model_dump(exclude={"sft"}))
        return Sft(
            SftStage(
                model=config.model,
                lora=config.lora,
                on_out_of_memory=config.on_out_of_memory,
                seed=config.seed,
                output_dir=folder,
                data=rows,
                prompt=config.prompt,
                sft={"completion_only_loss": True, "save_strategy": "no", **warm_start.sft},
            )
        )

    def _merge(self, trained: Path, target: Path, device: Device) -> None:
        """One whole model in `target`. Adapters on quantized weights go into the weights before
        quantization."""
        if self.config.lora is not None:
            model_config = self.config.model.model_copy(update={"load_in_4bit": False})
            model, tokenizer = load_trained(
                trained, model_config, select_weights_dtype(device, model_config.dtype, frozen=True)
            )
            with write_whole(target) as folder:
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
        else:
            trained.rename(target)

    # ------------------------------------------------------------------------------------- trainer

    def train_once(self, run: RlRun, start: str, tokenizer: Any) -> None:
        self._refuse_without_template(tokenizer, start)
        with install_generation(self.config.generation, run.folder, run.log) as self._served:
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
        lengths, left_out = self._select_fitting(run.data.train, tokenizer)
        examples = [item for item in run.data.train if item.id in lengths]
        for line in left_out:
            run.log(line)
        self._models = self._models or [
            open_reward_model(model, run.device) for model in config.reward.models
        ]
        tasks = {item.id: item for item in examples}
        judges = Judges(
            config.reward,
            tasks,
            config.prompt,
            file=file,
            grading=clock.measure_grading,
        ).build_judges(self._models)
        errors: list[GradusError] = []
        rollout = None
        build: Callable[..., Any]
        if config.turns is not None:
            rollout = Rollout(config.turns, judges[0], config.prompt.opening)
            build = partial(
                TurnsTrainer,
                reward_funcs=[
                    make_reward_function(rollout.compute_rewards, judges[0].name, errors)
                ],
                rollout_func=rollout,
            )
        else:
            sources: list[Judge | FunctionReward] = [*judges]
            for setting in config.reward.functions:
                function = load_function(setting)
                sources.append(FunctionReward(setting, function, tasks, file.add_extra_results))
            build = partial(
                TRAINERS[config.stage],
                reward_funcs=[
                    make_reward_function(source.compute_rewards, source.name, errors)
                    for source in sources
                ],
            )
        trainer = self.build_trainer(
            run,
            build,
            start,
            callbacks=[clock],
            metrics=MetricsFile(run.folder.metrics, grpo_summary, clock),
            args=self.build_rl_arguments(run.options, run.folder.path, len(examples)),
            # Only prompts and ids: tests stay out of TRL's tables and warnings.
            train_dataset=Dataset.from_list(
                [{"prompt": self._render(item), "prompt_id": item.id} for item in examples]
            ),
            processing_class=tokenizer,
        )
        graders = len(judges) - len(config.reward.models)
        trainer.asked_early = judges[:graders] if config.reward.early else ()
        trainer.errors = errors
        trainer.completions_file = file
        trainer.served = self._served
        trainer.refill_rounds = config.task_sampling.refill
        if config.generation.ahead:
            micro_steps = trainer.args.steps_per_generation * trainer.args.num_iterations
            trainer.lookahead = Lookahead(micro_steps)
        if rollout is not None:
            rollout.prepare(trainer)
            trainer.weight = config.reward.weight
            trainer.files = (run.folder.completions, run.folder.turns)
        self._held_out = HeldOutEvalCallback(run, tokenizer, trainer)
        if config.stop_when != StopWhen():
            trainer.add_callback(
                CollapseWatch(config.stop_when, run.log, self._held_out.pass_rates)
            )
        trainer.add_callback(SaveAtRoundEnd(trainer.count_round_steps()))
        trainer.add_callback(self._held_out)
        return trainer

    def run_before_steps(self, run: RlRun, trainer: Any) -> None:
        if run.checkpoint is None:
            self._held_out.measure(trainer.model, BEFORE)
            run.wish.raise_if_made()
        else:
            trainer.resume_from(run.checkpoint)

    def run_after_steps(self, run: RlRun, trainer: Any) -> None:
        self._held_out.measure(trainer.model, AFTER)
        if is_leader():
            before, after = (run.folder.evaluations / f"{name}.json" for name in (BEFORE, AFTER))
            write_comparisons(before, after, run.folder.comparison)

    def _render(self, example: Example) -> Prompt:
        return render(self.config.prompt, example)

    def _select_fitting(
        self, examples: Sequence[Example], tokenizer: Any
    ) -> tuple[dict[str, int], list[str]]:
        """Return tokens of the prompts that are short enough, by task, and a line about those that
        are not. Raises Misuse if none is."""
        limit = self.config.data.max_prompt_tokens or math.inf
        template = self.config.prompt.chat_template_kwargs
        fitting = {}
        left_out = []
        for example in examples:
            length = len(encode_prompt(tokenizer, self._render(example), None, template))
            if length <= limit:
                fitting[example.id] = length
            else:
                left_out.append(example.id)
        if not fitting:
            raise Misuse(f"data.max_prompt_tokens: every prompt is longer than {limit} tokens")
        if not left_out:
            return fitting, []
        named = ", ".join([*left_out[:5], "..."] if len(left_out) > 5 else left_out)
        return fitting, [f"{len(left_out)} tasks left out, longer than {limit} tokens: {named}"]


STAGES = {"grpo": Rl, "rloo": Rl}


def _await_grader(reward: RewardConfig, log: Log) -> None:
    """Raise GradingStopped if the grader does not come: better now than after the warm start."""
    try:
        log(f"grading by {check_grader(reward, reward.ready_timeout_s)}")
    except QueueFault as fault:
        raise GradingStopped(f"{fault.message}\n{start_hint(reward)}") from None


def check_grader(config: RewardConfig, timeout_s: float) -> str:
    """Return what will grade. Raises QueueFault if it is not there in time, Misuse for a rubric
    that it does not have."""
    info = asyncio.run(create_client(config).wait_ready(config.judge, timeout_s))
    if config.rubric is not None and config.rubric not in info.rubrics:
        raise Misuse(
            f"reward.rubric: {info.grader} has no {config.rubric}; it has:"
            f" {', '.join(info.rubrics)}"
        )
    rubric = config.rubric or info.rubrics[0]
    return f"{info.grader} at {', '.join(config.urls)}, rubric {rubric}, {info.slots} slots"
