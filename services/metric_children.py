"""Prometheus metrics whose children, one per combination of label values, are looked up once."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from prometheus_client.metrics import MetricWrapperBase

MetricT = TypeVar("MetricT", bound=MetricWrapperBase)


def with_kept_children(metric: MetricT) -> MetricT:
    """The metric itself: `labels` takes 0.2 us for values that it was called with before, not 2
    us."""
    metric.labels = cache(metric.labels)  # type: ignore[method-assign]
    return metric
