"""Rates, quantiles and how sure one can be of them: pass@k, intervals, paired tests. scipy and
statsmodels compute.

A rate's `method` names the method of its interval; where that is a fallback, it also says why. Pure
functions of numbers, reproducible for a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

CONFIDENCE = 0.95
RESAMPLES = 10_000
BATCH_VALUES = 4_000_000
"""Values that a bootstrap draws at once: keeps its memory near 32 MiB whatever the number of
tasks."""
EXACT_FLIPS = 16
"""Up to this many changes all signs are tried."""

WILSON = "wilson"
WILSON_ALIKE = "wilson: all tasks came out alike, which leaves a bootstrap no width"
BOOTSTRAP = "bootstrap over problems"
NEWCOMBE = "newcombe: all tasks changed alike, which leaves a bootstrap no width"
NO_WIDTH = "no interval: a bootstrap needs two tasks"


class Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )


class Rate(Part):
    """A figure between the ends of the interval that holds the true one with `confidence`."""

    value: float
    low: float
    high: float
    confidence: float = CONFIDENCE
    method: str

    @property
    def fallback(self) -> str | None:
        """The method and why it was used where the usual one was not; None where it was."""
        return self.method if ":" in self.method else None

    @property
    def text(self) -> str:
        """The share in percent with its interval, and the method where that is a fallback."""
        return f"{self.value:.1%} ({self.low:.1%} to {self.high:.1%})" + (
            f"; {self.method}" if self.fallback else ""
        )


class Quantiles(Part):
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


def compute_quantiles(values: Sequence[float]) -> Quantiles | None:
    """Quantiles, interpolated between neighbours; None for no values."""
    if not values:
        return None
    p50, p90, p99 = map(float, np.quantile(np.asarray(values, dtype=np.float64), [0.5, 0.9, 0.99]))
    return Quantiles(mean=fmean(values), p50=p50, p90=p90, p99=p99, max=float(max(values)))


def compute_pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of `k` answers drawn from `n`, of which `c` passed, is
    right: 1 - C(n-c,k)/C(n,k).

    Unbiased (Chen et al. 2021, arXiv:2107.03374). Raises ValueError unless 0 <= c <= n and 1 <= k
    <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(
            f"pass@{k} needs at least {k} answers, of which at most all passed; got {c} of {n}"
        )
    return 1.0 - float(math.comb(n - c, k) / math.comb(n, k))


# ---------------------------------------------------------------------- scipy, statsmodels


def compute_wilson_interval(passed: int, total: int) -> tuple[float, float]:
    """Wilson's score interval for `passed` of `total`; (0, 1) when there is nothing to go by."""
    from scipy import stats  # 0.6 s, and most commands compute no interval

    if total == 0:
        return 0.0, 1.0
    interval = stats.binomtest(passed, total).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def bootstrap(
    *data: Sequence[float], statistic: Callable[..., Any] = np.mean, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval for a statistic of columns of one value per problem, by drawing problems
    with replacement."""
    from scipy import stats

    columns = [np.asarray(column, dtype=np.float64) for column in data]
    count = columns[0].size
    if count == 0:
        raise ValueError("a bootstrap needs at least one problem")
    if count == 1:
        value = float(statistic(*columns, axis=0))
        return value, value
    result = stats.bootstrap(
        columns,
        statistic,
        paired=True,
        n_resamples=RESAMPLES,
        batch=max(1, BATCH_VALUES // (count * len(columns))),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def compute_mcnemar_p(gained: int, lost: int) -> float:
    """Exact two-sided p-value of McNemar's test: the chance of so uneven a split if neither side
    were better."""
    from scipy import stats

    if gained + lost:
        return float(stats.binomtest(gained, gained + lost).pvalue)
    return 1.0


def compute_sign_flip_p(changes: Sequence[float], *, seed: int = 0) -> float:
    """Two-sided p-value of the mean of paired changes: how often chance signs would make it as far
    from 0.

    Exact where there are at most `EXACT_FLIPS` changes that are not 0, else from `RESAMPLES` draws,
    the observed one counted in. 1 for at most one change.
    """
    from scipy import stats

    column = np.asarray([change for change in changes if change != 0], dtype=np.float64)
    if column.size < 2:  # scipy takes no fewer; one change is as far from 0 with either sign
        return 1.0
    result = stats.permutation_test(
        (column,),
        lambda signed, axis: np.abs(signed.sum(axis=axis)),
        permutation_type="samples",
        alternative="greater",
        n_resamples=2**column.size if column.size <= EXACT_FLIPS else RESAMPLES,
        batch=max(1, BATCH_VALUES // column.size),
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the same order: a test counts at a level when its own is not above that
    level.

    The chance that any of them counts wrongly is at most the level, however the tests depend on
    each other (Holm 1979). Raises ValueError for values that are not within 0 to 1.
    """
    if bad := [p for p in p_values if not 0 <= p <= 1]:
        raise ValueError(f"{bad[0]} is no p-value")
    if not p_values:
        return []
    from statsmodels.stats.multitest import multipletests  # 1 s

    return list(map(float, multipletests(list(p_values), method="holm")[1]))


# ------------------------------------------------------------------------------------------- rates


def pass_rate(counts: Sequence[tuple[int, int]], k: int = 1, *, seed: int = 0) -> Rate | None:
    """pass@k over problems given as (answers, of them passed); None when no problem has `k`
    answers.

    With one answer per problem Wilson's interval. With more, bootstrap over problems, because
    answers to the same problem are not independent; where all problems came out alike that would
    have no width, so Wilson's again.
    """
    values = [compute_pass_at_k(n, c, k) for n, c in counts if n >= k]
    if not values:
        return None
    one_each = all(n == 1 for n, _ in counts if n >= k)
    if one_each or set(values) in ({0.0}, {1.0}):
        low, high = compute_wilson_interval(round(sum(values)), len(values))
        return Rate(
            value=fmean(values), low=low, high=high, method=WILSON if one_each else WILSON_ALIKE
        )
    return compute_mean(values, seed=seed)


def compute_mean(values: Sequence[float], *, seed: int = 0) -> Rate | None:
    """Return the mean of one value per problem with its bootstrap interval; None for no values."""
    if not values:
        return None
    low, high = bootstrap(values, seed=seed)
    return Rate(
        value=fmean(values), low=low, high=high, method=BOOTSTRAP if len(values) > 1 else NO_WIDTH
    )


def compute_share(holds: Iterable[Sequence[bool]], seed: int) -> Rate | None:
    """Return the share for which something holds, given by task; tasks weigh alike, and the
    interval is over tasks."""
    return pass_rate([(len(task), sum(task)) for task in holds], seed=seed)


def compute_ratio(tops: Sequence[float], bottoms: Sequence[float], seed: int) -> Rate | None:
    """Return one sum by the other, both given by task, with an interval over tasks; None for no
    task. Each task's part of the second is over 0."""
    if not tops:
        return None
    low, high = bootstrap(
        tops,
        bottoms,
        statistic=lambda top, bottom, axis: top.sum(axis=axis) / bottom.sum(axis=axis),
        seed=seed,
    )
    method = BOOTSTRAP if len(tops) > 1 else NO_WIDTH
    return Rate(value=sum(tops) / sum(bottoms), low=low, high=high, method=method)


def compute_paired_change(
    before: Sequence[float], after: Sequence[float], *, seed: int = 0
) -> Rate | None:
    """Return the mean change over the same problems in the same order, with its interval; None for
    no problems.

    Paired bootstrap over problems; where every problem changed alike, Newcombe's interval for two
    rates instead (1998, method 10), which is blind to the pairing and so a little wide.
    """
    changes = [b - a for a, b in zip(before, after, strict=True)]
    if not changes:
        return None
    if len(set(changes)) > 1:
        return compute_mean(changes, seed=seed)
    from statsmodels.stats.proportion import confint_proportions_2indep

    total = len(changes)
    ends = confint_proportions_2indep(
        *(round(fmean(after) * total), total, round(fmean(before) * total), total),
        method="newcomb",
        alpha=1 - CONFIDENCE,
    )
    return Rate(
        value=changes[0],
        low=max(float(ends[0]), -1.0),
        high=min(float(ends[1]), 1.0),
        method=NEWCOMBE,
    )


def group_by_task(records: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the records of each task, in the order of the first ones."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["prompt_id"], []).append(record)
    return list(groups.values())
