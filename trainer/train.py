"""`gradus train`: one run from its config to its final model, linear on purpose. Its options are
the CLI's."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from gradus.errors import Misuse
from trainer.config.run import RunConfig
from trainer.config.stages import load_stage
from trainer.runs.distributed import is_leader
from trainer.runs.folder import RunFolder, find_resume_checkpoint
from trainer.runs.signals import StopRequested, StopWish, defer_signals

EXIT_DONE, EXIT_MISUSE, EXIT_FAULTED = 0, 2, 3
"""A run ended by a signal exits with 128 + its number."""


def main(
    config: Path,
    overrides: Sequence[str] = (),
    *,
    dry_run: bool = False,
    resume: str = "auto",
    stage: str | None = None,
    accept_changes: bool = False,
) -> int:
    """Train as the YAML file says, with overrides such as `--learning_rate 1e-6` on top; returns
    the exit status.

    `stage`: which one the file has to be for; None: whichever it says, GRPO if it says none.
    `resume`: `auto` resumes from the newest whole checkpoint in the run folder, `never` starts anew
    and sets an earlier run aside, a path resumes from that checkpoint.
    `accept_changes`: resume although settings differ from those recorded in the folder. Raises
    Misuse.
    """
    # No telemetry of libraries, none of their bars beside ours, unless a variable asks for them.
    quiet = {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    os.environ.update({name: value for name, value in quiet.items() if name not in os.environ})
    wish = StopWish()
    with wish.handle_signals():
        try:
            with defer_signals():  # what TRL takes is read from TRL
                settings = load_stage(config, overrides, stage)
            wish.raise_if_made()
            if not dry_run:
                folder = RunFolder(settings.output_dir)
                with folder.locked() if is_leader() else nullcontext():
                    return _run(settings, folder, resume, wish, accept_changes)
        except StopRequested as stopped:  # before there was a training.log
            wish.log(f"{stopped}. No step was done.")
            return stopped.exit_status
    return check(settings)


def check(settings: RunConfig) -> int:
    """Print the resolved config on standard output and what is there of what it needs on standard
    error."""
    print(settings.model_dump_json(indent=1))
    with defer_signals():
        from trainer.check import collect_findings
    failure_summary = set()
    for subject, trouble, text in collect_findings(settings):
        print(f"{'ok    ' if trouble is None else 'FAILED'} {subject}: {text}", file=sys.stderr)
        failure_summary.add(trouble)
    if "misuse" in failure_summary:
        return EXIT_MISUSE
    return EXIT_FAULTED if "fault" in failure_summary else EXIT_DONE


def _run(
    settings: RunConfig, folder: RunFolder, resume: str, wish: StopWish, accept_changes: bool
) -> int:
    with defer_signals():
        from trainer.generation.responses import GenerationStopped
        from trainer.rewards.judge import GradingStopped
        from trainer.runs.progress import make_logger
    wish.raise_if_made()
    aside = folder.set_aside() if resume == "never" and is_leader() else None
    with make_logger(folder.log) as log:
        wish.log = log
        if aside is not None:
            log(f"the run that was here now lies in {aside}")
        try:
            with defer_signals():
                from trainer.stages.base import train_stage
            train_stage(settings, folder, resume, wish, log, accept_changes=accept_changes)
        except (GradingStopped, GenerationStopped) as stopped:
            if isinstance(stopped, GradingStopped):
                note = "Nothing ungraded was trained on. "
            else:
                note = ""
            log(f"stopped: {stopped}\n{note}{_describe_next_step(folder)}")
            return EXIT_FAULTED
        except StopRequested as stopped:
            log(f"{stopped}. {_describe_next_step(folder)}")
            return stopped.exit_status
        except Exception as error:
            # The command line says it on standard error; the log has it for those who look later.
            end = "refused" if isinstance(error, Misuse) else "crashed"
            if is_leader():
                with folder.log.open("a", encoding="utf-8") as file:
                    file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {end}: {error}\n")
            raise
    return EXIT_DONE


def _describe_next_step(folder: RunFolder) -> str:
    checkpoint = find_resume_checkpoint(folder.path, "auto", lambda text: None)
    if checkpoint is None:
        return "No step was finished; start again with the same config."
    return f"Start again with the same config and output_dir to resume from {checkpoint.name}."
