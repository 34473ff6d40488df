"""The newest training values of every run, for Prometheus (docs/operate/monitor.md).

Made anew for each scrape. Values of labels are names from run folders: flags, stages and parts of rewards are a dozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gradus.yaml_reader import read_mapping
from services.dashboard.evaluations import MODES
from services.dashboard.run import FollowedRun, State
from services.dashboard.run_alerts import Rule, alerts_of

MAX_LABEL_VALUES = 60
"""Values of one label of one run that are exported."""
METRICS = read_mapping(Path(__file__).with_name("prometheus_metrics.yaml"))
"""Tables of metrics by name, with what a run's files call each one."""


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
    places = {"newest": newest, "latest": run.metrics.latest, "warm_start": run.warm_start.latest}
    for place, found in places.items():
        for name, (key, about) in METRICS[place].items():
            yield name, about, found.get(key), {}
    for name, (label, about, key, values) in METRICS["labelled"].items():
        for value in values:
            yield name, about, newest.get(key.format(value)), {label: value}
    for name, (label, prefix, about) in METRICS["families"].items():
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
