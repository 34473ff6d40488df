"""The newest training values of every run, for Prometheus (docs/operate/monitor.md).

They are computed for each scrape. Label values are names from run folders: about a dozen flags,
stages and components.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gradus.yaml_reader import read_mapping
from services.dashboard.run import FollowedRun, State

MAX_LABEL_VALUES = 60  # values of one label of one run that are exported
# Tables of metrics by name, with the key of each one in a run's files.
METRICS = read_mapping(Path(__file__).with_name("prometheus_metrics.yaml"))
_MEANING_AT = {
    "computed": 1,
    "newest": 1,
    "latest": 1,
    "warm_start": 1,
    "labelled": 1,
    "families": 2,
}
# Metric without `gradus_train_` -> its description.
MEANINGS = {
    name: entry[_MEANING_AT[table]]
    for table, entries in METRICS.items()
    for name, entry in entries.items()
}


def render_metrics(runs: Iterable[FollowedRun], now: float) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Values(list(runs), now))
    return generate_latest(registry)


class _Values(Collector):
    def __init__(self, runs: list[FollowedRun], now: float) -> None:
        self._runs = runs
        self._now = now

    def collect(self) -> Iterable[GaugeMetricFamily]:
        metrics: dict[str, GaugeMetricFamily] = {}
        for run in self._runs:
            for name, value, labels in _iter_samples(run, self._now):
                if value is not None:
                    family = GaugeMetricFamily(
                        f"gradus_train_{name}", MEANINGS[name], labels=("run", *labels)
                    )
                    # Names of files that are not UTF-8 would make the whole response unreadable.
                    texts = []
                    for text in (run.id, *labels.values()):
                        texts.append(text.encode("utf-8", "replace").decode())
                    metrics.setdefault(name, family).add_metric(texts, value)
        return metrics.values()


def _iter_samples(
    run: FollowedRun, now: float
) -> Iterator[tuple[str, float | None, dict[str, str]]]:
    """Yield metric, value (None is unknown), and labels beside `run`."""
    state, _ = run.get_state(now)
    newest = run.metrics.newest
    for member in State:
        yield "state", float(member is state), {"state": member.value}
    yield "step", run.metrics.step, {}
    yield "max_steps", run.max_steps, {}
    yield "last_logged_timestamp_seconds", run.changed_at or None, {}
    places = {"newest": newest, "latest": run.metrics.latest, "warm_start": run.warm_start.latest}
    for place, logged in places.items():
        for name, (key, _) in METRICS[place].items():
            yield name, logged.get(key), {}
    for name, (label, _, key, values) in METRICS["labelled"].items():
        for value in values:
            yield name, newest.get(key.format(value)), {label: value}
    for name, (label, prefix, _) in METRICS["families"].items():
        keys = [key for key in run.metrics.binned.names if key.startswith(prefix)]
        for key in keys[:MAX_LABEL_VALUES]:
            yield name, newest.get(key, 0.0), {label: key.removeprefix(prefix)}
    for evaluation in run.evaluations.list_by_step()[-1:]:
        step = evaluation.step if evaluation.step is not None else run.metrics.step
        yield "held_out_step", step, {}
        for figures in evaluation.figures:
            yield "held_out_pass_rate", figures["pass_rate"], {"mode": figures["mode"]}
            yield "held_out_reward", figures["reward"], {"mode": figures["mode"]}
