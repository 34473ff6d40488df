"""Pass rates and how sure one can be of them: pass@k, Wilson, bootstrap over problems, paired comparison.

Pure functions of numbers, reproducible for a seed. It reads no files and does not know what a completion is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
CHUNK_VALUES = 4_000_000
"""Values drawn at once by the bootstrap: keeps its memory near 32 MB whatever the number of problems."""
EXACT_FLIPS = 16
"""Up to so many changes all signs are tried."""

WILSON = "wilson"
BOOTSTRAP = "bootstrap over problems"
NEWCOMBE = "newcombe"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and the interval that holds the true one with `CONFIDENCE`."""

    value: float
    low: float
    high: float
    method: str


@dataclass(frozen=True, slots=True)
class Discordance:
    """Two answers to each of the same problems, one before and one after."""

    both_passed: int
    gained: int
    """Wrong before, right after."""
    lost: int
    """Right before, wrong after."""
    neither: int

    @property
    def p_value(self) -> float:
        return mcnemar(self.gained, self.lost)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of `k` answers drawn from `n`, of which `c` passed, is right: 1 - C(n-c,k)/C(n,k).

    Unbiased (Chen et al. 2021, arXiv:2107.03374). Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} needs at least {k} answers, of which at most all passed; got {c} of {n}")
    return 1.0 - float(math.comb(n - c, k) / math.comb(n, k))


def wilson(passed: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's score interval for `passed` of `total` (Wilson 1927); (0, 1) when there is nothing to go by."""
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = passed / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    # Rounding must not push the ends of a certain outcome past it.
    low = 0.0 if passed == 0 else (centre - spread) / scale
    high = 1.0 if passed == total else (centre + spread) / scale
    return low, high


def bootstrap(
    values: Sequence[float], *, seed: int = 0, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Percentile interval for the mean of `values`, one per problem, by drawing problems with replacement."""
    column = np.asarray(values, dtype=np.float64)
    if column.size == 0:
        raise ValueError("a bootstrap needs at least one problem")
    draw = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, CHUNK_VALUES // column.size)
    means = [
        column[draw.integers(0, column.size, size=(min(rows, resamples - start), column.size))].mean(axis=1)
        for start in range(0, resamples, rows)
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)


def ratio_bootstrap(
    tops: Sequence[float],
    bottoms: Sequence[float],
    *,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Percentile interval for sum(tops) / sum(bottoms), by drawing pairs of both with replacement."""
    pairs = np.asarray([tops, bottoms], dtype=np.float64)
    if pairs.size == 0:
        raise ValueError("a bootstrap needs at least one pair")
    count = pairs.shape[1]
    draw = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, CHUNK_VALUES // (2 * count))
    ratios = []
    for start in range(0, resamples, rows):
        drawn = pairs[:, draw.integers(0, count, size=(min(rows, resamples - start), count))].sum(axis=2)
        there = drawn[1] > 0  # a draw of nothing but pairs without a bottom has no ratio
        ratios.append(drawn[0][there] / drawn[1][there])
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(ratios), [tail, 1 - tail])
    return float(low), float(high)


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p-value of McNemar's test: the chance of so uneven a split if neither side were better."""
    changed = gained + lost
    tail = sum(math.comb(changed, i) for i in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**changed))


def sign_flip(changes: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> float:
    """Two-sided p-value of the mean of paired changes: how often chance signs would make it as far from 0.

    Exact where there are at most `EXACT_FLIPS` changes that are not 0, else from `resamples` draws, the one that was
    seen counted in. 1 for no changes.
    """
    column = np.asarray([change for change in changes if change != 0], dtype=np.float64)
    if column.size == 0:
        return 1.0
    seen = abs(float(column.sum())) * (1 - 1e-12)
    if column.size <= EXACT_FLIPS:
        signs = 1 - 2 * ((np.arange(2**column.size)[:, None] >> np.arange(column.size)) & 1)
        return float(np.mean(np.abs(signs @ column) >= seen))
    draw = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, CHUNK_VALUES // column.size)
    as_far = 0
    for start in range(0, resamples, rows):
        flips = draw.integers(0, 2, size=(min(rows, resamples - start), column.size)) * 2 - 1
        as_far += int(np.count_nonzero(np.abs(flips @ column) >= seen))
    return (as_far + 1) / (resamples + 1)


# ---------------------------------------------------------------------------------------------------- estimates


def pass_rate(counts: Sequence[tuple[int, int]], k: int = 1, *, seed: int = 0) -> Estimate | None:
    """pass@k over problems given as (answers, of them passed); None when no problem has `k` answers.

    With one answer per problem Wilson's interval. With more, bootstrap over problems, because answers to the same
    problem are not independent; where all problems came out alike that would have no width, so Wilson's again.
    """
    values = [pass_at_k(n, c, k) for n, c in counts if n >= k]
    if not values:
        return None
    one_each = all(n == 1 for n, _ in counts if n >= k)
    if one_each or set(values) in ({0.0}, {1.0}):
        return Estimate(fmean(values), *wilson(round(sum(values)), len(values)), WILSON)
    return mean_with_interval(values, seed=seed)


def mean_with_interval(values: Sequence[float], *, seed: int = 0) -> Estimate | None:
    """The mean of one value per problem with its bootstrap interval; None for no values."""
    if not values:
        return None
    return Estimate(fmean(values), *bootstrap(values, seed=seed), BOOTSTRAP)


def paired_difference(before: Sequence[float], after: Sequence[float], *, seed: int = 0) -> Estimate | None:
    """The mean change over the same problems in the same order, with its interval; None for no problems.

    Paired bootstrap over problems; where every problem changed alike, Newcombe's interval for two rates instead.
    """
    changes = [b - a for a, b in zip(before, after, strict=True)]
    if not changes:
        return None
    if len(set(changes)) == 1:
        return Estimate(changes[0], *_newcombe(fmean(before), fmean(after), len(changes)), NEWCOMBE)
    return Estimate(fmean(changes), *bootstrap(changes, seed=seed), BOOTSTRAP)


def discordance(before: Sequence[bool], after: Sequence[bool]) -> Discordance:
    """How one answer before and one after compare, problem by problem."""
    pairs = list(zip(before, after, strict=True))
    return Discordance(*(pairs.count(kind) for kind in ((True, True), (False, True), (True, False), (False, False))))


def _newcombe(before: float, after: float, total: int) -> tuple[float, float]:
    """Newcombe's hybrid score interval for after - before (1998, method 10); blind to the pairing, so a little wide."""
    (low_b, high_b), (low_a, high_a) = (wilson(round(share * total), total) for share in (before, after))
    difference = after - before
    low = difference - math.hypot(after - low_a, high_b - before)
    high = difference + math.hypot(high_a - after, before - low_b)
    return max(low, -1.0), min(high, 1.0)
