"""What figures are made of: rates with intervals, quantiles, shares over tasks. Knows no record but its task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from trainer.evaluate.intervals import BOOTSTRAP, CONFIDENCE, Estimate, pass_rate, ratio_bootstrap

Record = Mapping[str, Any]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Rate(Part):
    """A figure between its interval's ends."""

    value: float
    low: float
    high: float
    confidence: float = CONFIDENCE
    method: str


class Quantiles(Part):
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


def rate_of(estimate: Estimate | None) -> Rate | None:
    if estimate is None:
        return None
    return Rate(value=estimate.value, low=estimate.low, high=estimate.high, method=estimate.method)


def quantiles(values: Sequence[float]) -> Quantiles | None:
    if not values:
        return None
    p50, p90, p99 = (float(value) for value in np.quantile(np.asarray(values, dtype=np.float64), [0.5, 0.9, 0.99]))
    return Quantiles(mean=fmean(values), p50=p50, p90=p90, p99=p99, max=float(max(values)))


def by_task(records: Iterable[Record]) -> list[list[Record]]:
    """The records of each task, in the order of the first ones."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["prompt_id"], []).append(record)
    return list(groups.values())


def share_over_tasks(holds: Iterable[Sequence[bool]], seed: int) -> Rate | None:
    """The share for which something holds, given by task; tasks weigh alike, and the interval is over tasks."""
    return rate_of(pass_rate([(len(task), sum(task)) for task in holds], seed=seed))


def ratio_over_tasks(tops: Sequence[float], bottoms: Sequence[float], seed: int) -> Rate | None:
    """One sum by the other, both given by task, with an interval over tasks; None where the second is nothing."""
    total = sum(bottoms)
    if not total:
        return None
    low, high = ratio_bootstrap(tops, bottoms, seed=seed)
    return Rate(value=sum(tops) / total, low=low, high=high, method=BOOTSTRAP)
