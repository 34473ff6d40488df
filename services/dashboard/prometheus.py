"""The newest training values of every run, for Prometheus (docs/operations.md, "Metrics of training").

Made anew for each scrape. Values of labels are names from run folders: flags, stages and parts of rewards are a dozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from services.dashboard.evaluations import MODES
from services.dashboard.run import FollowedRun, State
from services.dashboard.run_alerts import Rule, alerts_of

MAX_LABEL_VALUES = 60
"""Values of one label of one run that are exported."""
PLAIN: Mapping[str, tuple[str, str]] = {
    "epoch": ("epoch", "Passes over the data"),
    "tokens": ("num_tokens", "Tokens seen"),
    "reward": ("reward", "Mean reward"),
    "reward_std": ("reward_std", "Standard deviation of the reward"),
    "frac_reward_zero_std": ("frac_reward_zero_std", "Share of groups whose completions all earned the same"),
    "passed": ("gradus/passed", "Share of verdicts that passed"),
    "group_passed": ("gradus/group_passed", "Share of groups with a completion that passed"),
    "faulted": ("gradus/faulted", "Share of completions that could not be judged"),
    "cached": ("gradus/cached", "Share of verdicts from the cache"),
    "loss": ("loss", "Loss"),
    "grad_norm": ("grad_norm", "Norm of the gradient"),
    "learning_rate": ("learning_rate", "Learning rate"),
    "entropy": ("entropy", "Entropy of the policy"),
    "kl": ("kl", "KL divergence to the reference"),
    "token_accuracy": ("mean_token_accuracy", "Share of tokens predicted right"),
    "clipped_ratio": ("completions/clipped_ratio", "Share of completions that reached the length limit"),
    "step_seconds": ("step_time", "A whole step"),
    "sync_seconds": ("generation/sync_s", "Handing weights to the generation server"),
    "sync_logprob_difference_max": ("generation/sync_logprob_difference_max", "Trainer against server after it"),
}
"""Metric -> what the run calls it, and what it is."""
OF_ANY_STEP: Mapping[str, tuple[str, str]] = {"eval_loss": ("eval_loss", "Loss on what was held out")}
"""Logged more rarely than every step."""
LABELLED: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "completion_tokens": ("stat", "Length of completions", "completions/{}_length", ("mean", "min", "max")),
    "step_part_seconds": ("part", "Where the time of a step goes", "time/{}_s", ("generate", "grade", "update")),
    "sampling_logprob_difference": (
        "stat",
        "Trainer against generation server, of sampled tokens",
        "sampling/sampling_logp_difference/{}",
        ("mean", "max"),
    ),
}
"""Metric -> label, what it is, what the run calls it with the value of the label in it, and the values."""
FAMILIES: Mapping[str, tuple[str, str, str]] = {
    "reward_component": ("component", "gradus/component/", "Mean of a part of the reward"),
    "stage": ("stage", "gradus/stage/", "Share of verdicts whose furthest stage it is"),
    "flag": ("flag", "gradus/flag/", "Share of verdicts with the flag"),
}
"""Metric -> label, how the run's names begin, and what it is."""


def exposition(runs: Iterable[FollowedRun], now: float) -> bytes:
    """The text for Prometheus, of all runs that were not set aside."""
    registry = CollectorRegistry()
    registry.register(_Values([run for run in runs if not run.is_set_aside], now))
    return generate_latest(registry)


class _Values(Collector):
    def __init__(self, runs: list[FollowedRun], now: float) -> None:
        self._runs = runs
        self._now = now

    def collect(self) -> Iterable[GaugeMetricFamily]:
        metrics: dict[str, GaugeMetricFamily] = {}
        for run in self._runs:
            for name, about, value, labels in _samples_of(run, self._now):
                if value is not None:
                    made = GaugeMetricFamily(f"gradus_train_{name}", about, labels=("run", *labels))
                    # Names of files that are not UTF-8 would make the whole response unreadable.
                    texts = [text.encode("utf-8", "replace").decode() for text in (run.id, *labels.values())]
                    metrics.setdefault(name, made).add_metric(texts, value)
        return metrics.values()


def _samples_of(run: FollowedRun, now: float) -> Iterator[tuple[str, str, float | None, dict[str, str]]]:
    """Metric, what it is, its value (None is unknown), and its labels beside `run`."""
    state, _ = run.state(now)
    raised = {alert.rule for alert in alerts_of(run.metrics, run.evaluations.in_order())}
    newest = run.metrics.newest
    for one in State:
        yield "state", "1 for the state that holds", float(one is state), {"state": one.value}
    for rule in Rule:
        yield "alarm", "1 while the rule holds", float(rule in raised), {"rule": rule.value}
    yield "step", "The newest logged step", run.metrics.step, {}
    yield "max_steps", "Steps that were asked for", run.max_steps, {}
    yield "last_logged_timestamp_seconds", "When it logged last", run.changed_at or None, {}
    for name, (key, about) in PLAIN.items():
        yield name, about, newest.get(key), {}
    for name, (key, about) in OF_ANY_STEP.items():
        yield name, about, run.metrics.latest.get(key), {}
    for name, key in (("warm_start_loss", "loss"), ("warm_start_eval_loss", "eval_loss")):
        yield name, "Of supervised training before GRPO", run.warm_start.latest.get(key), {}
    for name, (label, about, key, values) in LABELLED.items():
        for value in values:
            yield name, about, newest.get(key.format(value)), {label: value}
    for name, (label, prefix, about) in FAMILIES.items():
        known = [key for key in run.metrics.binned.names if key.startswith(prefix)]
        for key in known[:MAX_LABEL_VALUES] if run.metrics.step is not None else ():
            yield name, about, newest.get(key, 0.0), {label: key.removeprefix(prefix)}
    for evaluation in run.evaluations.in_order()[-1:]:
        step = evaluation.step if evaluation.step is not None else run.metrics.step
        yield "held_out_step", "The step of the newest evaluation", step, {}
        for mode in MODES:
            if (figures := evaluation.of(mode)) is not None:
                yield "held_out_pass_rate", "pass@1 on held-out tasks", figures.pass_rate, {"mode": mode}
                yield "held_out_reward", "Mean reward on held-out tasks", figures.reward, {"mode": mode}
