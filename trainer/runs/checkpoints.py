"""What every trainer of TRL's and transformers' gets from us: it saves between steps, resumes from
a checkpoint, ends.

The loop is theirs. When memory runs out is `trainer.runs.oom_recovery`'s.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import is_deepspeed_zero3_enabled

from gradus.errors import Misuse
from trainer.runs.distributed import is_any_rank_true, is_leader, wait_for_all
from trainer.runs.folder import DEEPSPEED, FSDP, PLAIN, find_defect, find_layout, read_step
from trainer.runs.signals import StopWish


class Resumable:
    """Goes before a trainer of transformers' in the list of bases."""

    def count_steps(self: Any) -> int:
        return int(self.set_initial_training_values(self.args, self.get_train_dataloader())[-1])

    def load(self: Any, checkpoint: Path) -> None:
        """The weights of a checkpoint, to be saved or measured and not to be trained."""
        if (
            not is_deepspeed_zero3_enabled()
        ):  # no process has room for them, and held-out tasks are left out
            self._load_from_checkpoint(str(checkpoint))

    def save_now(self: Any) -> None:
        """Write a checkpoint of the last whole step, if there was one and it is not saved."""
        checkpoint = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        # Processes must agree: the first one may have written its part before another one looks.
        if self.state.global_step > 0 and is_any_rank_true(find_defect(checkpoint) is not None):
            self._save_checkpoint(self.model, trial=None)
            # once one process has ended, a launcher soon kills the others: all parts must be
            # written
            wait_for_all()

    def _save_checkpoint(self: Any, model: Any, trial: Any) -> None:
        # Over an older checkpoint of the same step, what says that it is whole goes first.
        if is_leader():
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            (folder / "trainer_state.json").unlink(missing_ok=True)
        super()._save_checkpoint(model, trial)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self: Any, checkpoint: str | None) -> None:
        """Raise Misuse for a checkpoint of another kind of launch, whose optimizer states
        transformers would skip."""
        layout = FSDP if self.is_fsdp_enabled else PLAIN
        if self.is_deepspeed_enabled:
            layout = DEEPSPEED
        if (
            checkpoint is not None
            and (checkpoint_layout := find_layout(Path(checkpoint))) != layout
        ):
            raise Misuse(
                f"{checkpoint} was written with {checkpoint_layout}, and this run is launched with"
                f" {layout}: its"
                " optimizer states do not fit. Launch the run as before, or begin anew with"
                " --resume never"
            )
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]


class StopAtStepEnd(TrainerCallback):  # type: ignore[misc]
    """Turns a wish into TRL's orderly stop: log, save, leave the loop."""

    def __init__(self, wish: StopWish) -> None:
        self._wish = wish

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # A launcher passes signals on one by one: processes must agree on the step, or some wait
        # for ever for others.
        if is_any_rank_true(self._wish.signal_number is not None):
            control.should_log = control.should_save = control.should_training_stop = True


class SaveAtRoundEnd(TrainerCallback):  # type: ignore[misc]
    """Puts off checkpoints and orderly stops to the end of a round of `steps` updates on one batch
    of completions.

    TRL 1.16 keeps a round's completions in memory alone: a run resumed within a round would be
    another run.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._to_save = self._to_stop = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._to_save |= control.should_save
        self._to_stop |= control.should_training_stop
        at_end = state.global_step % self._steps == 0 or state.global_step >= state.max_steps
        control.should_save = self._to_save and at_end
        control.should_training_stop = self._to_stop and at_end
        if at_end:
            self._to_save = False


def is_done(trainer: Any, checkpoint: Path | None, log: Callable[[str], None]) -> bool:
    """Return whether the checkpoint is the end, and then its weights are loaded: transformers would
    do one step more."""
    if checkpoint is None or read_step(checkpoint) < trainer.count_steps():
        return False
    log(f"all {trainer.count_steps()} steps are done already")
    trainer.load(checkpoint)
    return True


STATES = (
    "global_step*",
    "latest",
    "zero_to_*",
    "rng_state_*",
    "scheduler.pt",
    "trainer_state.json",
)
"""Files of a checkpoint of DeepSpeed that are not the model's."""


def save_final(trainer: Any, target: Path, done: Path | None) -> None:
    """The trained model in `target`, whole or not at all. `done`: the checkpoint that already was
    the run's end."""
    half_saved = target.with_name(target.name + ".partial")
    if is_leader():
        for old in (half_saved, target):
            shutil.rmtree(old, ignore_errors=True)
    if done is None or not trainer.is_deepspeed_enabled:
        trainer.save_model(str(half_saved))
    elif is_leader():  # DeepSpeed saves only what it has prepared for training
        shutil.copytree(done, half_saved, ignore=shutil.ignore_patterns(*STATES))
    if is_leader():
        half_saved.rename(target)
