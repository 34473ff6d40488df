"""What a person and a program see of a run while it goes: a bar, training.log and metrics.jsonl.

It decides nothing: callbacks here only read what TRL logs, and the clock only looks.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm
from transformers import ProgressCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar

from trainer.runs.distributed import is_leader
from trainer.runs.folder import append_lines

LOGGER = logging.getLogger("gradus.train")


class _StandardError(logging.Handler):
    """Handler that writes lines above the progress bar, if one is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


class ProgressBar(ProgressCallback):  # type: ignore[misc]
    """transformers' progress bar without its dump of logged values, which training.log has."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        return


@contextmanager
def make_logger(log: Path) -> Iterator[Callable[[str], None]]:
    """`log`: a line for training.log and standard error; of several processes only the first one
    talks."""
    formatter = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S")
    handlers: list[logging.Handler] = []
    if is_leader():
        handlers = [logging.FileHandler(log, encoding="utf-8"), _StandardError()]
    for handler in handlers:
        handler.setFormatter(formatter)
        LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    disable_progress_bar()  # transformers draws one for each file that it loads or saves
    try:
        yield LOGGER.info
    finally:
        for handler in handlers:
            LOGGER.removeHandler(handler)
            handler.close()


class StepClock(TrainerCallback):  # type: ignore[misc]
    """Splits the time of a step at the moments when grading begins and ends.

    `generate` is everything before grading, so it holds reference log-probabilities too; `update`
    is everything after.
    """

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._steps = 0
        self._mark = time.perf_counter()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._mark = time.perf_counter()

    @contextmanager
    def measure_grading(self) -> Iterator[None]:
        self._record_lap("generate")
        try:
            yield
        finally:
            self._record_lap("grade")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._record_lap("update")
        self._steps += 1

    def take(self) -> dict[str, float]:
        """Mean seconds per step since the last call, by part."""
        spent = self._spent
        steps = max(self._steps, 1)
        self._spent = {}
        self._steps = 0
        return {f"time/{part}_s": round(seconds / steps, 4) for part, seconds in spent.items()}

    def _record_lap(self, part: str) -> None:
        now = time.perf_counter()
        self._spent[part] = self._spent.get(part, 0.0) + now - self._mark
        self._mark = now


class MetricsFile(TrainerCallback):  # type: ignore[misc]
    """One JSON line per logged step, and a shorter one for people in training.log."""

    def __init__(
        self,
        file: Path,
        summary: Callable[[Mapping[str, Any]], str],
        clock: StepClock | None = None,
    ) -> None:
        self._file = file
        self._summary = summary
        self._clock = clock

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        # TRL also logs a summary of the whole run at its end, without a learning rate.
        measured = any(name.startswith("eval_") for name in logs or ())
        if not logs or not ("learning_rate" in logs or measured) or not state.is_world_process_zero:
            return
        clocked = self._clock.take() if self._clock and not measured else {}
        line = {
            "step": state.global_step,
            "epoch": state.epoch,
            "time": round(time.time(), 3),
            **logs,
            **clocked,
        }
        append_lines(self._file, [line])
        summary = render_measurement(line) if measured else self._summary(line)
        text = f"step {state.global_step}/{state.max_steps}  {summary}"
        LOGGER.info(text)


def _make_summary(*parts: tuple[str, ...]) -> Callable[[Mapping[str, Any]], str]:
    """Return a summary of logged numbers: each part is a form and the names that its number may
    have."""

    def render_summary(logs: Mapping[str, Any]) -> str:
        texts = []
        for form, *names in parts:
            logged = [logs[name] for name in names if name in logs]
            texts.append(_format_number(form, logged[0] if logged else None))
        return "  ".join(part for part in texts if part)

    return render_summary


_LOSS = ("loss {:.4f}", "loss")
_LENGTH = ("length {:.0f}", "length")
_RATE = ("lr {:.2e}", "learning_rate")
_ACCURACY = ("accuracy {:.3f}", "rewards/accuracies", "accuracy")
_MARGIN = ("margin {:.3f}", "rewards/margins", "margin")
grpo_summary = _make_summary(
    ("reward {:.3f}", "reward"),
    ("± {:.3f}", "reward_std"),
    ("passed {:.0%}", "gradus/passed"),
    ("entropy {:.3f}", "entropy"),
    ("kl {:.4f}", "kl"),
    ("length {:.0f}", "completions/mean_length"),
    ("faulted {:.0%}", "gradus/faulted"),
    ("{:.2f} s/step", "step_time"),
)
sft_summary = _make_summary(_LOSS, ("token accuracy {:.3f}", "mean_token_accuracy"), _RATE)
pair_summary = _make_summary(_LOSS, _ACCURACY, _MARGIN, ("kl {:.3f}", "kl"), _RATE)
"""Summary of preferences and reward models: how often the better answer ranks first, by what
margin; KL of `dpo`."""
token_summary = _make_summary(_LOSS, _LENGTH, _RATE)


def render_measurement(logs: Mapping[str, Any]) -> str:
    """Return figures of one evaluation of the loss, without its speed."""
    named = {}
    for name, value in logs.items():
        if name.startswith("eval_"):
            named[name] = value
    slow = ("_runtime", "_per_second", "_num_tokens")
    return "  ".join(
        _format_number(name + " {:.4f}", value)
        for name, value in named.items()
        if not name.endswith(slow)
    )


def _format_number(form: str, value: Any) -> str:
    return form.format(value) if isinstance(value, (int, float)) else ""
