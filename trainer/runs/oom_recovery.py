"""Memory runs out: a run continues with fewer samples at a time and as many more accumulated for
each update.

An update sees as many samples as before, in the same order. What transformers has for this
(`auto_find_batch_size`) makes updates smaller and begins anew, so it is only used where the
configuration sets it. One process only: of several, the others would wait for the one that ran out.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from transformers import TrainerCallback

from gradus.errors import Misuse
from trainer.config.run import RunConfig
from trainer.runs.context import C, D, RunContext
from trainer.runs.folder import find_newest_checkpoint, read_step

BATCHES = ("per_device_train_batch_size", "per_device_eval_batch_size")


class OutOfMemory(Exception):
    """A step needed more memory than there is; the steps before it are saved."""

    def __init__(self, message: str, step: int, args: Any) -> None:
        super().__init__(message)
        self.step = step
        """The last whole one."""
        self.batch = int(args.per_device_train_batch_size)
        self.eval_batch = int(args.per_device_eval_batch_size)
        self.accumulated = int(args.gradient_accumulation_steps)


class UpdateWatch(TrainerCallback):  # type: ignore[misc]
    """Knows whether weights are being changed at the moment, and so may be neither the old ones nor
    the new ones."""

    def __init__(self) -> None:
        self.in_update = False

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.in_update = True

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.in_update = False


@contextmanager
def detect_oom(trainer: Any, watch: UpdateWatch, config: RunConfig) -> Iterator[None]:
    """Turns an allocation that failed inside the block into `OutOfMemory`, with the last whole step
    saved.

    Several processes would wait for each other, and vLLM's engine cannot start twice in one: there
    the error stays what it is.
    """
    try:
        yield
        return
    except RuntimeError as error:
        if config.on_out_of_memory == "stop" or not should_reduce_batch_size(error):
            raise
        in_process = getattr(trainer, "use_vllm", False) and trainer.vllm_mode == "colocate"
        if trainer.args.world_size > 1 or in_process:
            error.add_note(
                "With several processes, or vLLM in this one, a run cannot make its batches smaller"
                " by itself: halve per_device_train_batch_size, double gradient_accumulation_steps"
                " and start again."
            )
            raise
        # What the failed step had allocated hangs on the frames that it failed in.
        traceback.clear_frames(error.__traceback__)
        message = str(error).strip().splitlines()[0]
    trainer.model.zero_grad(set_to_none=True)
    clear_device_cache(garbage_collection=True)
    if not watch.in_update:
        trainer.save_now()
    raise OutOfMemory(message, trainer.state.global_step, trainer.args)


def retry_with_smaller_batches(
    run: RunContext[C, D], attempt: Callable[[RunContext[C, D]], None]
) -> None:
    """Call `attempt` with the run, and again with smaller batches for as long as it raises
    OutOfMemory.

    Raises Misuse when one sample at a time is too much.
    """
    while True:
        try:
            attempt(run)
            return
        except OutOfMemory as ran_out:
            options = build_smaller_options(run.options, ran_out)
            done = ran_out.step
            message = (
                f"out of memory after step {done} with {ran_out.batch} samples at a time"
                f" ({ran_out}); continuing with {options[BATCHES[0]]} at a time,"
                f" {options['gradient_accumulation_steps']} times for each update"
            )
        # Only now, without the exception, is the trainer that failed gone, and its memory with it.
        clear_device_cache(garbage_collection=True)
        checkpoint = find_newest_checkpoint(run.folder.path, up_to=done) or run.checkpoint
        run.folder.drop_after(read_step(checkpoint))
        run.log(f"{message}, from {checkpoint.name if checkpoint else 'the beginning'}")
        run = dataclasses.replace(run, options=options, checkpoint=checkpoint)


def build_smaller_options(options: Mapping[str, Any], ran_out: OutOfMemory) -> dict[str, Any]:
    """Return the options with fewer samples at a time, and an update that sees as many as
    before."""
    factor = next(
        (factor for factor in range(2, ran_out.batch + 1) if ran_out.batch % factor == 0), None
    )
    if factor is None:
        raise Misuse(
            f"out of memory with one sample at a time ({ran_out}): lower max_length or"
            " max_completion_length (and generation_batch_size, where the model being trained"
            " writes), or use lora, gradient_checkpointing, model.load_in_4bit, or more memory"
        )
    new = {
        **options,
        BATCHES[0]: ran_out.batch // factor,
        BATCHES[1]: max(1, ran_out.eval_batch // factor),
    }
    new["gradient_accumulation_steps"] = ran_out.accumulated * factor
    if options.get("steps_per_generation") is not None:
        new["steps_per_generation"] = int(options["steps_per_generation"]) * factor
    return new
