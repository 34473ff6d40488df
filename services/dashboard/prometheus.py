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
from services.dashboard.run_alerts import Rule

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
    "sync_logprob_difference_max": (
        "generation/sync_logprob_difference_max",
        "How far trainer and server were apart after it",
    ),
}
"""Metric -> what the run calls it, and what it is."""
OF_ANY_STEP: Mapping[str, tuple[str, str]] = {"eval_loss": ("eval_loss", "Loss on what was held out")}
"""Logged more rarely than every step."""
LABELLED: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "completion_tokens": (
        "stat",
        "Length of completions",
        {one: f"completions/{one}_length" for one in ("mean", "min", "max")},
    ),
    "step_part_seconds": (
        "part",
        "Where the time of a step goes",
        {one: f"time/{one}_s" for one in ("generate", "grade", "update")},
    ),
    "sampling_logprob_difference": (
        "stat",
        "Trainer against generation server, of sampled tokens",
        {one: f"sampling/sampling_logp_difference/{one}" for one in ("mean", "max")},
    ),
}
"""Metric -> label, what it is, and by value of the label what the run calls it."""
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

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for metrics in (_of_states(self._runs, self._now), _of_logs(self._runs), _of_evaluations(self._runs)):
            for metric in metrics:
                if metric.samples:
                    yield metric


def _gauge(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"gradus_train_{name}", about, labels=("run", *labels))


def _add(metric: GaugeMetricFamily, run: FollowedRun, value: float | None, *labels: str) -> None:
    if value is not None:
        # What is no UTF-8 in the name of a file would make the whole answer unreadable.
        texts = [label.encode("utf-8", "replace").decode() for label in (run.id, *labels)]
        metric.add_metric(texts, value)


def _of_states(runs: list[FollowedRun], now: float) -> Iterator[GaugeMetricFamily]:
    states = _gauge("state", "1 for the state that holds", "state")
    alerts = _gauge("alarm", "1 while the rule holds", "rule")
    steps, most = _gauge("step", "The newest logged step"), _gauge("max_steps", "Steps that were asked for")
    logged = _gauge("last_logged_timestamp_seconds", "When it logged last")
    for run in runs:
        state, _ = run.state(now)
        for one in State:
            _add(states, run, float(one is state), one.value)
        raised = {alert.rule for alert in run.alerts()}
        for rule in Rule:
            _add(alerts, run, float(rule in raised), rule.value)
        _add(steps, run, run.metrics.step)
        _add(most, run, run.max_steps)
        _add(logged, run, run.changed_at or None)
    yield from (states, alerts, steps, most, logged)


def _of_logs(runs: list[FollowedRun]) -> Iterator[GaugeMetricFamily]:
    for name, (key, about) in {**PLAIN, **OF_ANY_STEP}.items():
        metric = _gauge(name, about)
        for run in runs:
            _add(metric, run, (run.metrics.latest if name in OF_ANY_STEP else run.metrics.newest).get(key))
        yield metric
    for name, key in (("warm_start_loss", "loss"), ("warm_start_eval_loss", "eval_loss")):
        metric = _gauge(name, "Of supervised training before GRPO")
        for run in runs:
            _add(metric, run, run.warm_start.latest.get(key))
        yield metric
    for name, (label, about, keys) in LABELLED.items():
        metric = _gauge(name, about, label)
        for run in runs:
            for value, key in keys.items():
                _add(metric, run, run.metrics.newest.get(key), value)
        yield metric
    yield from (_family(runs, name, *rest) for name, rest in FAMILIES.items())


def _family(runs: list[FollowedRun], name: str, label: str, prefix: str, about: str) -> GaugeMetricFamily:
    metric = _gauge(name, about, label)
    for run in runs:
        known = [key for key in run.metrics.binned.names if key.startswith(prefix)]
        for key in known[:MAX_LABEL_VALUES] if run.metrics.step is not None else ():
            _add(metric, run, run.metrics.newest.get(key, 0.0), key.removeprefix(prefix))
    return metric


def _of_evaluations(runs: list[FollowedRun]) -> Iterator[GaugeMetricFamily]:
    rates = _gauge("held_out_pass_rate", "pass@1 on held-out tasks", "mode")
    rewards = _gauge("held_out_reward", "Mean reward on held-out tasks", "mode")
    steps = _gauge("held_out_step", "The step of the newest evaluation")
    for run in runs:
        found = run.evaluations.in_order()
        if not found:
            continue
        _add(steps, run, found[-1].step if found[-1].step is not None else run.metrics.step)
        for mode in MODES:
            if (figures := found[-1].of(mode)) is not None:
                _add(rates, run, figures.pass_rate, mode)
                _add(rewards, run, figures.reward, mode)
    yield from (rates, rewards, steps)
