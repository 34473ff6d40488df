"""What the grading API says of queue and graders, asked every few seconds. Tells plainly when it does not answer."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from gradus.errors import Misuse
from services.dashboard.jsonl_tail import Json, parsed
from services.dashboard.series import finite

T = TypeVar("T")
TIMEOUT_S = 4.0
MAX_ANSWER_BYTES = 4 << 20
HISTORY = 720
"""Looks that are kept for the curves."""
RECENT_LOOKS = 60
"""Latencies are of what was graded since so many looks ago, five minutes."""
Buckets = dict[str, dict[float, float]]
"""Of a histogram of seconds, by stage: upper bound -> how many took no longer."""
MAX_GRADERS = 20
MAX_TEXT_CHARS = 200
GAUGES: Mapping[str, str] = {
    "gradus_queue_depth": "depth",
    "gradus_workers": "workers",
    "gradus_api_waiting": "waiting",
    "gradus_api_oldest_wait_seconds": "oldest_s",
    "gradus_api_stalled_seconds": "stalled_s",
    "gradus_api_cached_results_total": "cached",
}


@dataclass(slots=True)
class GraderState:
    """The figures of one grader since its API process started."""

    figures: dict[str, float] = field(default_factory=dict)
    jobs: dict[str, float] = field(default_factory=dict)
    results: dict[str, float] = field(default_factory=dict)
    faults: dict[str, float] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    flags: dict[str, float] = field(default_factory=dict)
    buckets: Buckets = field(default_factory=dict)
    """Of the wall time of grading, since the API started."""
    recent: Buckets = field(default_factory=dict)
    """The same, of the last minutes; of everything where these had none."""

    def latency_s(self, share: float, stage: str | None = None) -> float | None:
        """The time within which that share was graded lately, reckoned from the histogram."""
        chosen = [one for name, one in self.recent.items() if stage in (None, name)]
        sums: dict[float, float] = {}
        for one in chosen:
            for bound, count in one.items():
                sums[bound] = sums.get(bound, 0.0) + count
        return quantile(sums, share)


def since(now: Buckets, before: Buckets) -> Buckets:
    """What came to a histogram; all of it where nothing did, or where it was begun anew."""
    came = {
        stage: {bound: count - before.get(stage, {}).get(bound, 0.0) for bound, count in counts.items()}
        for stage, counts in now.items()
    }
    is_fewer = any(count < 0 for counts in came.values() for count in counts.values())
    is_none = not any(counts.get(math.inf) for counts in came.values())
    return now if is_fewer or is_none else came


def quantile(cumulative: Mapping[float, float], share: float) -> float | None:
    """As Prometheus does it: straight lines within a bucket; the last finite bound for what lies beyond it."""
    total = cumulative.get(math.inf, 0.0)
    if total <= 0:
        return None
    below_bound = below = 0.0
    for bound in sorted(cumulative):
        count = cumulative[bound]
        if count >= share * total:
            if math.isinf(bound):
                return below_bound
            inside = (share * total - below) / (count - below) if count > below else 1.0
            return below_bound + (bound - below_bound) * inside
        below_bound, below = bound, count
    return below_bound


class GradingApi:
    """One API process, watched."""

    def __init__(self, url: str, api_key: str | None = None, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Raises Misuse for what is no http(s) URL."""
        try:
            self._url = httpx.URL(url.rstrip("/"))
        except (httpx.InvalidURL, TypeError):
            raise Misuse(f"--api {url!r} is no URL") from None
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise Misuse(f"--api {url!r} is no http:// or https:// URL")
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, headers=headers, transport=transport)
        self._trouble: str | None = "it was not asked yet"
        self._list_trouble: str | None = None
        self._since = time.time()
        self._graders: dict[str, GraderState] = {}
        self._live: list[Json] = []
        self._broker_up: float | None = None
        self._history: deque[Json] = deque(maxlen=HISTORY)
        self._earlier: deque[dict[str, Buckets]] = deque(maxlen=RECENT_LOOKS)

    async def look(self) -> None:
        """Ask once. What it says stands until the next look; that it does not answer is a state like others."""
        families, trouble = await self._ask_for("/metrics", _families)
        live, list_trouble = await self._ask_for("/v1/graders", _list) if trouble is None else (None, None)
        if (self._trouble is None) is not (trouble is None):
            self._since = time.time()
        self._trouble, self._list_trouble = trouble, list_trouble
        self._live = live or []
        if families is not None:
            self._take(families)

    async def _ask_for(self, path: str, read: Callable[[bytes], T]) -> tuple[T | None, str | None]:
        """What it answers, or what is wrong."""
        try:
            return read(await self._get(path)), None
        except httpx.HTTPError as error:
            return None, f"{type(error).__name__}: {str(error)[:MAX_TEXT_CHARS]}"
        except ValueError as error:
            return None, f"what it answers cannot be read: {str(error)[:MAX_TEXT_CHARS]}"

    async def _get(self, path: str) -> bytes:
        async with self._client.stream("GET", f"{self._url}{path}") as response:
            if response.status_code != 200:
                raise ValueError(f"{path} answers {response.status_code}")
            data = b""
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > MAX_ANSWER_BYTES:
                    raise ValueError(f"{path} is longer than {MAX_ANSWER_BYTES} bytes")
        return data

    def _take(self, families: Iterable[Metric]) -> None:
        self._graders = {}
        for family in families:
            for sample in family.samples:
                if sample.name == "gradus_broker_up":
                    self._broker_up = finite(sample.value)
                grader = sample.labels.get("grader", "")
                if grader and (grader in self._graders or len(self._graders) < MAX_GRADERS):
                    _sort_in(self._graders.setdefault(grader, GraderState()), sample.name, sample.labels, sample.value)
        self._earlier.append({name: state.buckets for name, state in self._graders.items()})
        for name, state in self._graders.items():
            state.recent = since(state.buckets, self._earlier[0].get(name, {}))
        point = {name: self._point(state) for name, state in self._graders.items()}
        self._history.append({"time": time.time(), "graders": point})

    @staticmethod
    def _point(state: GraderState) -> Json:
        return {
            "depth": state.figures.get("depth"),
            "oldest_s": state.figures.get("oldest_s"),
            "p95_s": state.latency_s(0.95),
        }

    def state(self) -> Json:
        """For the page."""
        return {
            "url": str(self._url.copy_with(userinfo=b"")),
            "trouble": self._trouble,
            "list_trouble": self._list_trouble,
            "since": self._since,
            "broker_up": self._broker_up,
            "graders": [_told(name, state) for name, state in sorted(self._graders.items())],
            "live": self._live,
            "history": list(self._history),
        }

    async def close(self) -> None:
        await self._client.aclose()


def _families(answer: bytes) -> list[Metric]:
    """Raises ValueError for what is no exposition."""
    return list(text_string_to_metric_families(answer.decode("utf-8", "replace")))


def _list(answer: bytes) -> list[Json]:
    given = (parsed(answer) or {}).get("graders")
    found = [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    return [_announced(one) for one in found[: 2 * MAX_GRADERS]]


def _sort_in(state: GraderState, name: str, labels: Mapping[str, str], value: float) -> None:
    tables = {
        "gradus_queue_jobs": (state.jobs, "state"),
        "gradus_api_results_total": (state.results, "status"),
        "gradus_api_faults_total": (state.faults, "kind"),
        "gradus_api_verdicts_total": (state.stages, "stage"),
        "gradus_api_flags_total": (state.flags, "flag"),
    }
    number = finite(value)
    if number is None:
        return
    if name in GAUGES:
        state.figures[GAUGES[name]] = number
    elif name in tables:
        table, label = tables[name]
        table[labels.get(label, "")[:MAX_TEXT_CHARS]] = number
    elif name == "gradus_api_grade_seconds_bucket":
        bound = math.inf if labels.get("le") == "+Inf" else finite(_number(labels.get("le")))
        if bound is not None:
            state.buckets.setdefault(labels.get("stage", "")[:MAX_TEXT_CHARS], {})[bound] = number


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _told(name: str, state: GraderState) -> Json:
    stages = sorted(state.recent)
    return {
        "name": name,
        **{key: state.figures.get(key) for key in GAUGES.values()},
        "jobs": state.jobs,
        "results": state.results,
        "faults": state.faults,
        "stages": state.stages,
        "flags": state.flags,
        "lately": state.recent is not state.buckets,
        "p50_s": state.latency_s(0.5),
        "p95_s": state.latency_s(0.95),
        "latency": [
            {"stage": stage, "p50_s": state.latency_s(0.5, stage), "p95_s": state.latency_s(0.95, stage)}
            for stage in stages
            if state.recent[stage].get(math.inf)
        ],
    }


def _announced(given: Mapping[str, Any]) -> Json:
    texts = {name: str(given.get(name, ""))[:MAX_TEXT_CHARS] for name in ("name", "revision", "toolchain", "sandbox")}
    rubrics = given.get("rubrics")
    numbers = {name: finite(given.get(name)) for name in ("workers", "slots")}
    listed = [str(one)[:MAX_TEXT_CHARS] for one in rubrics[:MAX_GRADERS]] if isinstance(rubrics, list) else []
    return {**texts, **numbers, "rubrics": listed}
