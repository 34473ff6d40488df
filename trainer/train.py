"""`gradus train`: one run from its config to its final model, linear on purpose. Its options are the CLI's."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradus.errors import Misuse, QueueFault
from trainer.asked_early import client_of
from trainer.check import findings, ready_grader
from trainer.config import RewardConfig, RunConfig, TrainConfig
from trainer.data import Example, Tasks, load_tasks
from trainer.provenance import write_settings
from trainer.ranks import is_leader, wait_for_all
from trainer.run_folder import RunFolder, append_lines, checkpoint_to_resume, step_of
from trainer.signals import StopRequested, StopWish, held_back
from trainer.stages.settings import StageConfig, load_stage

if TYPE_CHECKING:
    # These load torch or transformers, which takes seconds; functions import them when they are needed.
    from trainer.device import Device
    from trainer.run import Run

EXIT_DONE, EXIT_MISUSE, EXIT_FAULTED = 0, 2, 3
"""A run ended by a signal exits with 128 + its number."""


def main(
    config: Path,
    overrides: Sequence[str] = (),
    *,
    dry_run: bool = False,
    resume: str = "auto",
    stage: str | None = None,
) -> int:
    """Train as the YAML file says, with overrides such as `--learning_rate 1e-6` on top; returns the exit status.

    `stage`: which one the file has to be for; None: whichever it says, GRPO if it says none.
    `resume`: `auto` goes on from the newest whole checkpoint in the run folder, `never` starts anew and sets an
    earlier run aside, a path goes on from that checkpoint. Raises Misuse.
    """
    _stay_quiet()
    wish = StopWish()
    with wish.listening():
        try:
            with held_back():  # what TRL takes is read from TRL
                settings = load_stage(config, overrides, stage)
            wish.raise_if_made()
            if not dry_run:
                folder = RunFolder(settings.output_dir)
                with folder.locked() if is_leader() else nullcontext():
                    return _run(settings, folder, resume, wish)
        except StopRequested as stopped:  # before there was a training.log
            wish.say(f"{stopped}. No step was done.")
            return stopped.exit_status
    return check(settings)


def check(settings: RunConfig) -> int:
    """Print the resolved config on standard output and what is there of what it needs on standard error."""
    print(settings.model_dump_json(indent=1))
    troubles = set()
    for what, trouble, text in findings(settings):
        print(f"{'ok    ' if trouble is None else 'FAILED'} {what}: {text}", file=sys.stderr)
        troubles.add(trouble)
    if "misuse" in troubles:
        return EXIT_MISUSE
    return EXIT_FAULTED if "fault" in troubles else EXIT_DONE


def _run(settings: RunConfig, folder: RunFolder, resume: str, wish: StopWish) -> int:
    with held_back():
        from trainer.generation.trouble import GenerationStopped
        from trainer.progress import narrated
        from trainer.rewards import GradingStopped
    wish.raise_if_made()
    aside = folder.set_aside() if resume == "never" and is_leader() else None
    with narrated(folder.log) as say:
        wish.say = say
        if aside is not None:
            say(f"the run that was here now lies in {aside}")
        try:
            _train(settings, folder, resume, wish, say)
        except GradingStopped as stopped:
            say(f"stopped: {stopped}\nNothing ungraded was trained on. {_how_to_go_on(folder)}")
            return EXIT_FAULTED
        except GenerationStopped as stopped:
            say(f"stopped: {stopped}\n{_how_to_go_on(folder)}")
            return EXIT_FAULTED
        except StopRequested as stopped:
            say(f"{stopped}. {_how_to_go_on(folder)}")
            return stopped.exit_status
        except Exception as error:
            # The command line says it on standard error; the log has it for those who look later.
            end = "refused" if isinstance(error, Misuse) else "crashed"
            if is_leader():
                with folder.log.open("a", encoding="utf-8") as log:
                    log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {end}: {error}\n")
            raise
    return EXIT_DONE


def _train(settings: RunConfig, folder: RunFolder, resume: str, wish: StopWish, say: Callable[[str], None]) -> None:
    if isinstance(settings, StageConfig):
        with held_back():
            from trainer.stages.run import train_stage
        wish.raise_if_made()
        train_stage(settings, folder, resume, wish, say)
    else:
        assert isinstance(settings, TrainConfig)
        _train_on_rewards(settings, folder, resume, wish, say)


def _train_on_rewards(
    settings: TrainConfig, folder: RunFolder, resume: str, wish: StopWish, say: Callable[[str], None]
) -> None:
    tasks = load_tasks(settings.data, settings.reward.grader, settings.seed)
    checkpoint = checkpoint_to_resume(folder.path, resume, say)
    done = step_of(checkpoint) if checkpoint else 0

    with held_back():
        from trainer.device import choose_device
        from trainer.grpo import grpo_config, grpo_options, train_grpo
        from trainer.reward_models import refuse_headless
        from trainer.run import Run
    wish.raise_if_made()

    device = choose_device(settings.model)
    options = grpo_options(settings, device, say)
    grpo_config(options, output_dir=folder.path, seed=settings.seed, tasks=len(tasks.train), stage=settings.stage)
    refuse_headless(settings.reward.models)
    if is_leader():
        write_down(settings, options, tasks, folder, device)
        folder.forget_after(done)
    wait_for_all()
    say(f"{len(tasks.train)} tasks to train on, {len(tasks.held_out)} held out, on {device.kind}, in {folder.path}")
    if checkpoint is not None:
        say(f"going on from {checkpoint}, step {done}")

    if settings.reward.grader is not None:
        await_grader(settings.reward, say)
    for service in settings.reward.services:
        await_grader(settings.reward.as_asked_of(service), say, "reward.services")
    wish.raise_if_made()
    run = Run(settings, options, tasks, device, folder, client_of(settings.reward), wish, say, checkpoint)
    train_grpo(run, _start(run))
    say(f"done: the model is in {folder.final}")


def await_grader(reward: RewardConfig, say: Callable[[str], None], place: str = "reward") -> None:
    """Raises GradingStopped if the grader does not come: better now than after the warm start."""
    from trainer.rewards import GradingStopped, what_to_start

    try:
        say(f"grading by {ready_grader(reward, reward.ready_timeout_s, place)}")
    except QueueFault as fault:
        raise GradingStopped(f"{fault.message}\n{what_to_start(reward)}") from None


def _start(run: Run) -> str:
    """Where the weights lie that GRPO starts from."""
    from trainer.adapters import rehearse
    from trainer.model import starting_point
    from trainer.sft import texts_of, warm_start

    asked = run.config.warm_start
    texts = texts_of(asked) if run.config.model.is_fresh and asked else ()
    start = starting_point(run.config.model, run.folder.fresh_model, texts, run.config.seed)
    if run.config.lora is not None:
        rehearse(run.config.lora, start, run.config.model)
    return warm_start(run, start) if asked else start


def write_down(settings: TrainConfig, options: dict[str, Any], tasks: Tasks, folder: RunFolder, device: Device) -> None:
    """What was asked, with what, and which tasks were used for what: enough to repeat the run."""
    write_settings(settings, options, folder, device)
    for file, examples in ((folder.train_tasks, tasks.train), (folder.held_out_tasks, tasks.held_out)):
        file.unlink(missing_ok=True)
        append_lines(file, [_as_row(example) for example in examples])


def _as_row(example: Example) -> dict[str, Any]:
    row = {"id": example.id, "kind": example.kind, "prompt": example.prompt, "solution": example.solution}
    if example.task is None:
        return row
    return {**row, "task": example.task.model_dump(mode="json", exclude_defaults=True)}


def _how_to_go_on(folder: RunFolder) -> str:
    checkpoint = checkpoint_to_resume(folder.path, "auto", lambda text: None)
    if checkpoint is None:
        return "No step was finished; start again with the same config."
    return f"Start again with the same config and output_dir to go on from {checkpoint.name}."


def _stay_quiet() -> None:
    """No telemetry of libraries, none of their bars beside ours; whoever wants them sets the variables."""
    for name, value in (
        ("HF_HUB_DISABLE_TELEMETRY", "1"),
        ("HF_DATASETS_DISABLE_PROGRESS_BARS", "1"),
        ("TOKENIZERS_PARALLELISM", "false"),
    ):
        os.environ.setdefault(name, value)
