"""The reward function of a run: completions go to the graders, verdicts come back as rewards, faults as None.

TRL leaves samples without a reward out of the group's baseline, so a fault of ours teaches the model nothing. Beside
further graders and reward models a fault would become a partial score, which `trainer.on_rewards` takes back. Past a
budget of faults the run stops. Nothing is judged here; retries and deadlines are `RewardClient`'s.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from gradus.client import RewardClient
from gradus.contract import Faulted, Graded, Submission, submission_class
from gradus.errors import GradusError
from gradus.tasks.base import MAX_TEXT_CHARS
from trainer.asked_early import Asked, Grading, Result
from trainer.config import FaultBudget, RewardConfig
from trainer.data import Example
from trainer.prompts import text_of, with_opening

Record = dict[str, Any]


class GradingStopped(GradusError):
    """Too much went ungraded to go on training; the message says what to start."""


def clean(completion: str) -> str:
    """The completion as the contract takes it: a model may write NUL, half a surrogate pair, or without end."""
    text = completion[:MAX_TEXT_CHARS].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def submission_of(
    config: RewardConfig, example: Example, completion: str, submission_id: str, opening: str = ""
) -> Submission:
    """One completion for one task, ready for the wire, with what its prompt has already written of it."""
    text = clean(with_opening(opening, completion))
    given = {"id": submission_id, "prompt": example.prompt, "completion": text, "task": example.task}
    return submission_class(config.judge).model_validate(given)


class Rewarder:
    """Grades what TRL sampled; `gradus` is the function to hand to TRL, which also names its metrics."""

    def __init__(
        self,
        config: RewardConfig,
        examples: Iterable[Example],
        client: RewardClient,
        *,
        opening: str = "",
        record: Callable[[Iterable[Record]], None] = lambda records: None,
        grading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`record` takes the lines of completions.jsonl; `grading` is entered while samples are with the graders.

        `opening` is what the prompts have already written of each completion (`prompt.opening` of the config).
        """
        self._config = config
        self._examples = {example.id: example for example in examples}
        self._opening = opening
        self._record = record
        self._grading = grading
        self._budget = BudgetWatch(config)
        self._asking = Grading(config, client, self._submission)

    async def gradus(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        prompt_id: Sequence[str],
        trainer_state: Any,
        log_extra: Callable[[str, list[Any]], None],
        log_metric: Callable[[str, float], None],
        **_columns: Any,
    ) -> list[float | None]:
        """One reward per completion, None where there is no verdict. Raises GradingStopped past the fault budget."""
        step = trainer_state.global_step + 1
        texts = [text_of(completion) for completion in completions]
        started = time.perf_counter()
        asked = list(zip(prompt_id, texts, strict=True))
        log_metric("gradus/early", self._asking.share_sent(asked))
        with self._grading():
            results = await self._asking.grade(asked, f"{step}.")
        log_metric("gradus/grade_s", time.perf_counter() - started)
        self._record(records_of(step, prompt_id, prompts, texts, results))
        for name, value in metrics_of(prompt_id, results).items():
            log_metric(name, value)
        for name, column in columns_of(results).items():
            log_extra(name, column)
        self._budget.check(step, results)
        return [result.reward if isinstance(result, Graded) else None for result in results]

    def send_ahead(self, asked: Iterable[Asked]) -> None:
        """Begin to grade what the next call of `gradus` will ask for. Call it on the loop that will run `gradus`."""
        self._asking.send_ahead(asked)

    def _submission(self, prompt_id: str, text: str, submission_id: str) -> Submission:
        return submission_of(self._config, self._examples[prompt_id], text, submission_id, self._opening)


# ----------------------------------------------------------------------------------------------------------- faults


@dataclass(slots=True)
class BudgetWatch:
    """Counts steps in a row whose share of faults is over the budget."""

    config: RewardConfig
    steps_over: int = 0

    def check(self, step: int, results: Sequence[Result]) -> None:
        """Raises GradingStopped when the budget is used up, or at once when a step has no verdict at all."""
        faults = [outcome_of(result)["fault"] for result in results if isinstance(result, Faulted)]
        budget: FaultBudget = self.config.fault_budget
        self.steps_over = self.steps_over + 1 if len(faults) > budget.share * len(results) else 0
        if results and len(faults) == len(results):
            what = f"none of {len(results)} samples could be graded"
        elif self.steps_over >= budget.steps:
            what = (
                f"{len(faults)} of {len(results)} samples could not be graded, and it is step {self.steps_over} "
                f"in a row with more than {budget.share:.0%}"
            )
        else:
            return
        raise GradingStopped(f"step {step}: {what}. {advice(self.config, faults)}")


def advice(config: RewardConfig, faults: Sequence[Record]) -> str:
    """What went wrong, where, and what to start."""
    kinds = Counter(fault["kind"] for fault in faults)
    counts = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common())
    return f"Faults: {counts}; the last: {faults[-1]['message']}\n{what_to_start(config)}"


def what_to_start(config: RewardConfig) -> str:
    return (
        f"Graders were asked for at {', '.join(config.urls)}. If nothing runs there, start `gradus serve`; if it runs "
        f"without workers of its own, start `gradus worker {config.judge} --redis redis://HOST:6379` on its "
        f"Redis; if it is only slow, raise reward.deadline_s ({config.deadline_s:g} s) or start more workers."
    )


# ---------------------------------------------------------------------------------------------- records and metrics


def records_of(
    step: int, prompt_ids: Sequence[str], prompts: Sequence[Any], texts: Sequence[str], results: Sequence[Result]
) -> list[Record]:
    """The lines of completions.jsonl for one step; `sample` counts within the group of one task."""
    counts: Counter[str] = Counter()
    records = []
    for prompt_id, prompt, text, result in zip(prompt_ids, prompts, texts, results, strict=True):
        where = {"step": step, "prompt_id": prompt_id, "sample": counts[prompt_id]}
        counts[prompt_id] += 1
        records.append({**where, "prompt": prompt, "completion": text, **outcome_of(result)})
    return records


NO_VERDICT: Record = {
    "reward": None,
    "passed": None,
    "stage": None,
    "components": {},
    "tests": None,
    "flags": [],
    "diagnostics": [],
    "fault": None,
    "rubric": None,
    "grader": None,
    "toolchain": None,
    "cached": None,
}


def outcome_of(result: Result) -> Record:
    """A result as plain fields, the same ones for verdicts and faults; a fault's reward is null, never zero."""
    given = result.model_dump(mode="json", include={"status", *NO_VERDICT})
    return {"status": result.status, **NO_VERDICT, **given}


def metrics_of(prompt_ids: Sequence[str], results: Sequence[Result], group: str = "gradus") -> dict[str, float]:
    """What to plot of one step, below `group`. Shares are of the graded samples, except `faulted`, which is of all."""
    verdicts = [result for result in results if isinstance(result, Graded)]
    metrics = {f"{group}/faulted": 1 - len(verdicts) / max(len(results), 1)}
    if not verdicts:
        return metrics
    share = 1 / len(verdicts)
    groups: dict[str, bool] = {}
    for prompt_id, result in zip(prompt_ids, results, strict=True):
        if isinstance(result, Graded):
            groups[prompt_id] = groups.get(prompt_id, False) or result.passed
    metrics[f"{group}/passed"] = share * sum(result.passed for result in verdicts)
    metrics[f"{group}/group_passed"] = sum(groups.values()) / len(groups)
    metrics[f"{group}/cached"] = share * sum(result.cached for result in verdicts)
    metrics |= _shares(f"{group}/stage", Counter(result.stage.value for result in verdicts), share)
    metrics |= _shares(f"{group}/flag", Counter(flag for result in verdicts for flag in result.flags), share)
    metrics |= _shares(f"{group}/component", _sums(result.components for result in verdicts), share)
    return metrics


def _shares(prefix: str, counts: Mapping[str, float], share: float) -> dict[str, float]:
    return {f"{prefix}/{name}": share * count for name, count in sorted(counts.items())}


def _sums(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for part in parts:
        for name, value in part.items():
            sums[name] += value
    return sums


def columns_of(results: Sequence[Result]) -> dict[str, list[Any]]:
    """Columns for TRL's own table of completions."""
    outcomes = [outcome_of(result) for result in results]
    return {
        "status": [outcome["status"] for outcome in outcomes],
        "stage": [outcome["stage"] for outcome in outcomes],
        "passed": [outcome["passed"] for outcome in outcomes],
        "components": [str(outcome["components"]) for outcome in outcomes],
        "flags": [" ".join(outcome["flags"]) for outcome in outcomes],
        "fault": [outcome["fault"] and outcome["fault"]["kind"] for outcome in outcomes],
    }
