"""Rewards of a run: each judge grades the completions of a step and is one reward function for TRL.

A judge is the grader of the tasks or a reward model. A fault becomes None and
spoils the completion's reward from every source (`trainer.stages.online`). Past a budget of faults
the run stops.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradus.client import RewardClient
from gradus.contract import Faulted, Graded, Submission, get_submission_class
from gradus.errors import GradusError
from gradus.tasks.base import clean_text
from trainer.config.run import TRLS_NAME_OF_THE_GRADER, RewardConfig
from trainer.data.tasks import Example
from trainer.runs.folder import append_lines

Record = dict[str, Any]
Result = Graded | Faulted
Sample = tuple[str, str]
"""A prompt's id and a completion for it."""
MakeSubmission = Callable[[str, str, str], Submission]
"""(prompt's id, completion, submission's id) -> what to send."""
Grade = Callable[[Sequence[Submission], float], Awaitable[list[Result]]]
"""(submissions, deadline in seconds) -> results in their order."""

MIN_DEADLINE_S = 1.0
"""Least deadline of a second request when early ones have used up the time."""


class GradingStopped(GradusError):
    """Too much went ungraded to go on training; the message says what to start."""


@dataclass(eq=False, slots=True)
class Judge:
    """One grader of a run. It belongs to the event loop that calls `compute_rewards`."""

    config: RewardConfig
    make_submission: MakeSubmission
    grade: Grade
    name: str = TRLS_NAME_OF_THE_GRADER
    """The beginning of the names of metrics."""
    value: Callable[[Graded], float] = lambda verdict: verdict.reward
    """The reward of a verdict."""
    record: Callable[[Sequence[Record]], None] | None = None
    """A function that takes lines of completions.jsonl."""
    grading: Callable[[], AbstractContextManager[None]] = nullcontext
    """A context that is entered while a step waits for verdicts."""
    _steps_over_budget: int = field(default=0, init=False)
    _early: dict[Sample, tuple[asyncio.Task[list[Result]], int]] = field(
        default_factory=dict, init=False
    )
    """The request that a completion went out with, and its place in it."""

    async def compute_rewards(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        prompt_id: Sequence[str],
        trainer_state: Any,
        log_metric: Callable[[str, float], None],
        **_columns: Any,
    ) -> list[float | None]:
        """Return one reward per completion, None where there is no verdict. Raises GradingStopped
        past the fault budget."""
        step = trainer_state.global_step + 1
        samples = []
        for key, completion in zip(prompt_id, completions, strict=True):
            samples.append((key, get_completion_text(completion)))
        log_metric(
            f"{self.name}/early", sum(key in self._early for key in samples) / max(len(samples), 1)
        )
        with self.grading():
            results = await self.collect_results(samples, f"{step}.")
        if self.record is not None:
            self.record(build_records(step, prompts, samples, results))
        for name, value in compute_judge_metrics(self.name, prompt_id, results).items():
            log_metric(name, value)
        self.stop_past_budget(step, results)
        return [self.value(result) if isinstance(result, Graded) else None for result in results]

    def send_ahead(self, samples: Iterable[Sample]) -> None:
        """Begin to grade what the next call of `compute_rewards` will ask for. Call it on the loop
        that will run that call."""
        new = [sample for sample in dict.fromkeys(samples) if sample not in self._early]
        if new:
            sent = asyncio.create_task(
                self._submit(new, f"early.{len(self._early)}.", self.config.deadline_s)
            )
            self._early |= {sample: (sent, place) for place, sample in enumerate(new)}

    async def collect_results(self, samples: Sequence[Sample], id_prefix: str) -> list[Result]:
        """Return results in order: early verdicts, and for the rest one request, within one
        deadline for both."""
        give_up_at = time.monotonic() + self.config.deadline_s
        early, self._early = (
            {sample: self._early[sample] for sample in samples if sample in self._early},
            {},
        )
        if early:
            requests = {request for request, _ in early.values()}
            await asyncio.wait(requests, timeout=self.config.deadline_s)
        early_results = {}
        for sample, (request, place) in early.items():
            if request.done() and not request.exception():
                early_results[sample] = request.result()[place]
        results = list(map(early_results.get, samples))
        missing = []
        for index, result in enumerate(results):
            if not isinstance(result, Graded):
                missing.append(index)
        left_s = max(give_up_at - time.monotonic(), MIN_DEADLINE_S)
        if missing:
            again = await self._submit([samples[index] for index in missing], id_prefix, left_s)
        else:
            again = []
        for index, result in zip(missing, again, strict=True):
            results[index] = result
        return [result for result in results if result is not None]

    async def _submit(
        self, samples: Sequence[Sample], id_prefix: str, deadline_s: float
    ) -> list[Result]:
        submissions = []
        for index, sample in enumerate(samples):
            submissions.append(self.make_submission(*sample, f"{id_prefix}{index}"))
        return await self.grade(submissions, deadline_s)

    def stop_past_budget(self, step: int, results: Sequence[Result]) -> None:
        """Raise GradingStopped at once when a step has no verdict at all, and after so many steps
        over the budget."""
        faults = []
        for result in results:
            if isinstance(result, Faulted):
                faults.append(build_outcome(result)["fault"])
        budget = self.config.fault_budget
        if len(faults) > budget.share * len(results):
            self._steps_over_budget = self._steps_over_budget + 1
        else:
            self._steps_over_budget = 0
        if results and len(faults) == len(results):
            problem = f"none of {len(results)} samples could be graded"
        elif self._steps_over_budget >= budget.steps:
            problem = (
                f"{len(faults)} of {len(results)} samples could not be graded, and it is step "
                f"{self._steps_over_budget} in a row with more than {budget.share:.0%}"
            )
        else:
            return
        raise GradingStopped(f"step {step}: {problem}. {describe_faults(self.config, faults)}")


# ------------------------------------------------------------------- completions, records, metrics


def get_completion_text(completion: Any) -> str:
    """Return what the model wrote, from either form in which TRL hands over a completion."""
    if isinstance(completion, str):
        return completion
    return "".join(str(message.get("content") or "") for message in completion)


def add_opening(opening: str, completion: str) -> str:
    """Return the completion together with what its prompt has already written of it; a model may
    have written that again.

    Graders get both: without the `<think>` that a prompt ends in, reasoning that never ends would
    look like an answer.
    """
    if completion.lstrip().startswith(opening.strip()):
        return completion
    return opening + completion


def build_submission_maker(
    config: RewardConfig, examples: Mapping[str, Example], opening: str = ""
) -> MakeSubmission:
    """Return completions for tasks, ready for the wire, with what their prompts have already
    written of them."""

    def make_submission(prompt_id: str, text: str, submission_id: str) -> Submission:
        example = examples[prompt_id]
        fields = {
            "id": submission_id,
            "prompt": example.prompt,
            "completion": clean_text(add_opening(opening, text)),
            "task": example.task,
        }
        return get_submission_class(config.judge).model_validate(fields)

    return make_submission


def make_http_grade(config: RewardConfig, client: RewardClient) -> Grade:
    return lambda submissions, deadline_s: client.grade(
        config.judge, submissions, rubric=config.rubric, deadline_s=deadline_s
    )


def build_records(
    step: int, prompts: Sequence[Any], samples: Sequence[Sample], results: Sequence[Result]
) -> list[Record]:
    """Return the lines of completions.jsonl for one step; `sample` counts within the group of one
    task."""
    counts: Counter[str] = Counter()
    records = []
    for prompt, (prompt_id, text), result in zip(prompts, samples, results, strict=True):
        position = {"step": step, "prompt_id": prompt_id, "sample": counts[prompt_id]}
        counts[prompt_id] += 1
        records.append({**position, "prompt": prompt, "completion": text, **build_outcome(result)})
    return records


_VERDICT = (
    "reward passed stage components tests flags diagnostics fault rubric grader toolchain cached"
)
NO_VERDICT: Record = dict.fromkeys(_VERDICT.split()) | {
    "components": {},
    "flags": [],
    "diagnostics": [],
}


def build_outcome(result: Result) -> Record:
    """Return a result as plain fields, the same ones for verdicts and faults; a fault's reward is
    null, never zero."""
    fields = result.model_dump(mode="json", include={"status", *NO_VERDICT})
    return {"status": result.status, **NO_VERDICT, **fields}


def compute_judge_metrics(
    judge: str, prompt_ids: Sequence[str], results: Sequence[Result]
) -> dict[str, float]:
    """Return metrics of one step, below the judge's name. Shares are of the graded samples, except
    `faulted`, which is of all.

    The grader of the tasks also has `passed`, `group_passed` and `stage`.
    """
    verdicts = []
    for prompt_id, result in zip(prompt_ids, results, strict=True):
        if isinstance(result, Graded):
            verdicts.append((prompt_id, result))
    metrics = {f"{judge}/faulted": 1 - len(verdicts) / max(len(results), 1)}
    if not verdicts:
        return metrics
    counts: dict[str, Any] = {"flag": Counter(), "component": Counter()}
    for _, verdict in verdicts:
        counts["flag"].update(verdict.flags)
        counts["component"].update(verdict.components)
    metrics[f"{judge}/cached"] = sum(verdict.cached for _, verdict in verdicts) / len(verdicts)
    if judge == TRLS_NAME_OF_THE_GRADER:
        passed = set()
        for prompt_id, verdict in verdicts:
            if verdict.passed:
                passed.add(prompt_id)
        metrics[f"{judge}/passed"] = sum(verdict.passed for _, verdict in verdicts) / len(verdicts)
        metrics[f"{judge}/group_passed"] = len(passed) / len(
            {prompt_id for prompt_id, _ in verdicts}
        )
        counts["stage"] = Counter(verdict.stage.value for _, verdict in verdicts)
    for kind, counted in counts.items():
        metrics |= {
            f"{judge}/{kind}/{name}": count / len(verdicts)
            for name, count in sorted(counted.items())
        }
    return metrics


class CompletionsFile:
    """completions.jsonl. It holds the lines of one round of generation until `write_round`: rewards
    are known one call before advantages, which are TRL's. Nothing that was taken is lost on the
    way."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._records: list[dict[str, Any]] = []
        self._model_results: dict[str, list[dict[str, Any]]] = {}

    def take(self, records: Iterable[dict[str, Any]]) -> None:
        self._records.extend(records)

    def add_extra_results(self, name: str, records: Sequence[dict[str, Any]]) -> None:
        """Hold what another source said of the same completions, in their order, before or after
        they were taken."""
        self._model_results.setdefault(name, []).extend(records)

    def write_round(self, advantages_B: Sequence[float]) -> None:
        """Write what is held with its advantages, in the order in which it was taken; None where
        the counts differ."""
        records = self._records
        model_results = self._model_results
        self._records = []
        self._model_results = {}
        lines = []
        for place, record in enumerate(records):
            line = {**record}
            models = {}
            for name, results in model_results.items():
                if len(results) == len(records):
                    models[name] = results[place]
            if models:
                line["reward_models"] = models
            if len(advantages_B) == len(records):
                line["advantage"] = advantages_B[place]
            else:
                line["advantage"] = None
            lines.append(line)
        if lines:
            append_lines(self._file, lines)


# ------------------------------------------------------------------------------------------ advice


def describe_faults(config: RewardConfig, faults: Sequence[Mapping[str, Any]]) -> str:
    """Return numbers of faults by kind, the last message, `start_hint`. `faults`: one or more, with
    `kind` and `message`."""
    kinds = Counter(fault["kind"] for fault in faults)
    counts = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common())
    return f"Faults: {counts}; the last: {faults[-1]['message']}\n{start_hint(config)}"


def start_hint(config: RewardConfig) -> str:
    if not config.urls:
        return "The reward model runs in this process. Train another one with: gradus train reward"
    return (
        f"Graders were asked for at {', '.join(config.urls)}. If nothing runs there, start `gradus"
        f" serve`; if it runs without workers of its own, start `gradus worker {config.judge}"
        " --redis redis://HOST:6379` on its Redis; if it is only slow, raise reward.deadline_s"
        f" ({config.deadline_s:g} s) or start more workers."
    )
