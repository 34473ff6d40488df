"""`stop_when`: ends a run that has collapsed, by rules over what is logged and measured; warns of
KL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from transformers import TrainerCallback

from trainer.config.run import StopOnKl, StopWhen
from trainer.runs.distributed import is_any_rank_true

RISE = 0.02
"""How much the mean reward has to rise to be called rising."""


class CollapseWatch(TrainerCallback):  # type: ignore[misc]
    """Turns a rule that holds into TRL's orderly stop: log, save, leave the loop."""

    def __init__(
        self, rules: StopOnKl, log: Callable[[str], None], pass_rates: Sequence[float] = ()
    ) -> None:
        """`pass_rates`: of the held-out tasks, in the order of measurement; it grows in the first
        process."""
        self._rules = StopWhen(**rules.model_dump())
        self._pass_rates = pass_rates
        self._log = log
        self._recent: dict[str, deque[float]] = {
            name: deque(maxlen=rules.steps) for name in ("kl", "frac_reward_zero_std", "entropy")
        }
        self._earned: list[float] = []
        self._mean_earned: list[float] = []
        """Mean reward of the steps before each measurement, since the one before it."""
        self._warned = False

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        if not logs or "learning_rate" not in logs:
            return
        for name, recent in self._recent.items():
            if name in logs:
                recent.append(float(logs[name]))
        if "reward" in logs:
            self._earned.append(float(logs["reward"]))
        level = self._compute_level("kl")
        limit = self._rules.kl_warning
        is_high = level is not None and limit is not None and level > limit
        if is_high and not self._warned:
            self._log(
                f"warning: KL to the reference is {level:.3g}, over stop_when.kl_warning {limit:g}"
            )
        self._warned = is_high

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        while len(self._mean_earned) < len(self._pass_rates):
            self._mean_earned.append(fmean(self._earned) if self._earned else 0.0)
            self._earned = []
        why = self.find_reason()
        if is_any_rank_true(why is not None):
            if why is not None:
                self._log(f"stop_when: {why}; the run ends with step {state.global_step}")
            control.should_log = control.should_save = control.should_training_stop = True

    def find_reason(self) -> str | None:
        """Return the rule that holds, in words; None while none does."""
        rules = self._rules
        for name, limit in (("kl", rules.kl), ("frac_reward_zero_std", rules.no_spread)):
            level = self._compute_level(name)
            if limit is not None and level is not None and level > limit:
                return f"{name} is {level:.3g} over {rules.steps} logged steps, over {limit:g}"
        entropy = self._compute_level("entropy")
        least = rules.min_entropy
        if least is not None and entropy is not None and entropy < least:
            return f"entropy is {entropy:.3g} over {rules.steps} logged steps, below {least:g}"
        flat = rules.held_out_flat
        if flat is not None and len(self._mean_earned) > flat + 1:
            before, *since = self._pass_rates[-flat - 1 :]
            earned = self._mean_earned[-flat - 1]
            earns = self._mean_earned[-1]
            if max(since) <= before and earns > earned + RISE:
                return (
                    f"the reward rose from {earned:.3f} to {earns:.3f}, and pass@1 of the held-out"
                    f" tasks did not rise above {before:.1%} in {flat} measurements"
                )
        return None

    def _compute_level(self, name: str) -> float | None:
        """Return the mean of the last `steps` values; None before there are so many."""
        values = self._recent[name]
        return fmean(values) if len(values) == self._rules.steps else None
