"""Two tenants on one service: one attacks with each of `attacks.ATTACKS` in turn, then with all of
them at once, while the other asks for little at a steady pace. The last row has no attacker, but
busy cores: what is left of a ratio beside it is the service's own.

`python -m tests.chaos.two_tenants --requests 200`. Ends with status 1 where the other tenant got a
429, a failure or a wrong verdict. Its latencies are in the table that is printed; they compare
only on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
from redis.asyncio import Redis

from services.api.api_keys import create_key
from services.broker.from_url import open_broker
from tests.chaos.attacks import ATTACKS
from tests.chaos.cluster import SOON_S, Cluster
from tests.chaos.history_checker import History, Result, make_completions

MEMORY = "96mb"
"""Memory of Redis."""
GRADERS = ("ocaml", "story")
BATCH = 4
"""Submissions of one of its requests to the grader `ocaml`."""
GRADING_MS = 100
DEADLINE_S = 600.0
"""Deadline of the neighbour's requests: it waits for each verdict, and the wait is what counts."""
PAUSE_S = 0.05
"""Seconds between an answer and the next request."""
STORY = "As a user, I want to export my report as PDF, so that I can share it."
ADAPTERS = "openenv,openrlhf,slime"
EACH_AND_ALL: dict[str, tuple[str, ...]] = {name: (name,) for name in ATTACKS}
ALL = "all of them at once"
EACH_AND_ALL[ALL] = tuple(ATTACKS)
EACH_AND_ALL["no attack, but as many busy processes as cores"] = ()
"""Names of `ATTACKS` that go on at the same time, by the name of the row."""


class TenantCluster(Cluster):
    """A cluster with two API keys, adapters and a real worker for stories.

    `max_depth`: bound of each grader's queue.
    """

    def __init__(self, folder: Path, *, max_depth: int, workers: int = 2) -> None:
        self.max_depth = max_depth
        self.attacker_key, attacker = create_key("attacker", GRADERS)
        neighbour_key, neighbour = create_key("neighbour", GRADERS)
        self.headers = {"Authorization": f"Bearer {neighbour_key}"}
        self._keys = f"{attacker.line()};{neighbour.line()}"
        super().__init__(folder, apis=1, workers=workers, lease_s=10 * SOON_S, journal=False)
        command = [sys.executable, "-m", "gradus", "worker", "story", "--redis", self.redis_url]
        self.workers.append(self._make_process("story", command))

    def _api(self, port: int) -> list[str]:
        options = ["--max-depth", str(self.max_depth), "--adapters", ADAPTERS]
        return ["env", f"GRADUS_API_KEYS={self._keys}", *super()._api(port), *options]

    async def limit_memory(self) -> None:
        """Give Redis the memory at which the jobs of one key filled it."""
        async with Redis.from_url(self.redis_url) as redis:
            await redis.config_set("maxmemory", MEMORY)

    async def wait_until_idle(self) -> None:
        """Wait until the queues are empty: the attacker's work ends at its deadlines."""
        broker = open_broker(self.redis_url)
        for grader in GRADERS:
            while await broker.depth(grader):  # noqa: ASYNC110  (it happens in Redis)
                await asyncio.sleep(0.05)
        await broker.close()

    def reset_peaks(self) -> None:
        for api in self.apis:
            Path(f"/proc/{api.pid}/clear_refs").write_text("5")

    def read_peak_mb(self) -> int:
        """Return the most memory of an API since `reset_peaks`, in MiB."""
        peaks = []
        for api in self.apis:
            status = Path(f"/proc/{api.pid}/status").read_text()
            peaks.append(int(status.partition("VmHWM:")[2].split()[0]) // 1024)
        return max(peaks)


@dataclass(slots=True)
class Phase:
    """What the neighbour saw while one attack went on, or none."""

    name: str
    waits: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in GRADERS})
    """Seconds of its requests, by grader."""
    counts: Counter[str] = field(default_factory=Counter)
    """Statuses and failures of the neighbour's requests."""
    answers: Counter[str] = field(default_factory=Counter)
    """Statuses and failures of the attacker's requests."""
    rounds: Counter[str] = field(default_factory=Counter)
    """Rounds that the attacker finished, by the name of the attack."""
    peak_mb: int = 0

    def get_percentile(self, grader: str, share: float) -> float:
        waits = sorted(self.waits[grader])
        return waits[int(len(waits) * share)]

    def count_requests(self) -> int:
        """Return the requests to the grader that got fewest."""
        return min(map(len, self.waits.values()))


class Neighbour:
    """The tenant that asks for little. `history` holds its submissions and verdicts to the
    invariant; those of stories all equal the first."""

    def __init__(self, http: httpx.AsyncClient, history: History) -> None:
        self._http = http
        self._history = history
        self._story: Result | None = None
        self._numbers = count(1)

    async def ask_for(self, phase: Phase, n_requests: int, attacks: Sequence[str] = ()) -> None:
        """Send requests to each grader, one after the other, until each got so many and the
        attacker did a round of each attack."""

        def is_over() -> bool:
            is_attacked = all(phase.rounds[name] for name in attacks)
            return is_attacked and phase.count_requests() >= n_requests

        await asyncio.gather(*(self._ask_grader(name, phase, is_over) for name in GRADERS))

    async def _ask_grader(self, grader: str, phase: Phase, is_over: Callable[[], bool]) -> None:
        while not is_over():
            submissions = self._write_stories() if grader == "story" else self._write_programs()
            started = time.monotonic()
            try:
                results = await self._post(grader, phase, submissions)
            except httpx.TransportError as error:
                phase.counts[type(error).__name__] += 1
                continue
            phase.waits[grader].append(time.monotonic() - started)
            if grader == "story":
                self._check_stories(results)
            elif results:
                self._history.check_response([one["id"] for one in submissions], results)
            await asyncio.sleep(PAUSE_S)

    async def _post(self, grader: str, phase: Phase, submissions: list[Result]) -> list[Result]:
        body = {"submissions": submissions, "deadline_s": DEADLINE_S}
        response = await self._http.post(f"/v1/grade/{grader}", json=body)
        phase.counts[f"status {response.status_code}"] += 1
        return response.json()["results"] if response.status_code == 200 else []

    def _write_programs(self) -> list[Result]:
        submissions = []
        for completion in make_completions(BATCH, GRADING_MS):
            submissions.append(
                {
                    "id": self._history.add(completion),
                    "completion": completion,
                    "task": {"tests": "let () = assert true"},
                }
            )
        return submissions

    def _write_stories(self) -> list[Result]:
        """Return a story that differs from all before by the white space behind it: so little that
        it stays a small one."""
        lines, spaces = divmod(next(self._numbers), 100)
        completion = STORY + " " * spaces + "\n" * lines
        return [{"id": "story", "completion": completion, "task": {"references": [STORY]}}]

    def _check_stories(self, results: list[Result]) -> None:
        for result in results:
            seen = {name: result.get(name) for name in ("status", "reward", "passed")}
            self._story = self._story or seen
            if seen != self._story or seen["status"] != "graded":
                self._history.breaches.append(f"not the story's verdict: {result}")


@asynccontextmanager
async def attack(
    cluster: TenantCluster, phase: Phase, names: Sequence[str], n_stories: int
) -> AsyncIterator[None]:
    """Repeat these attacks in a process of its own while the block runs."""
    command = [sys.executable, "-m", "tests.chaos.attacks", *names, "--url", cluster.urls[0]]
    jobs_of_run = cluster.max_depth // 16
    command += ["--jobs-of-run", str(jobs_of_run), "--stories", str(n_stories)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "ATTACKER_KEY": cluster.attacker_key},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    reading = asyncio.create_task(read_rounds(process.stdout, phase))
    try:
        yield
        process.stdin.close()
        await reading
        await process.wait()
        assert process.returncode == 0, "the attacker failed"
    finally:
        reading.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def keep_cores_busy() -> AsyncIterator[None]:
    """Run a process for each core that only computes, while the block runs."""
    processes = []
    try:
        for _ in range(os.cpu_count() or 1):
            command = [sys.executable, "-c", "while True: pass"]
            processes.append(await asyncio.create_subprocess_exec(*command))
        yield
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def read_rounds(lines: asyncio.StreamReader, phase: Phase) -> None:
    async for line in lines:
        if line.startswith(b"{"):
            phase.answers.update(json.loads(line))
        else:
            phase.rounds[line.decode().strip()] += 1


async def compare(
    cluster: TenantCluster,
    history: History,
    attacks: Mapping[str, Sequence[str]] = EACH_AND_ALL,
    n_requests: int = 1,
    n_stories: int = 1,
) -> list[Phase]:
    """Return for each attack a calm phase and one under attack, each of at least `n_requests`."""
    await cluster.limit_memory()
    phases = []
    async with httpx.AsyncClient(
        base_url=cluster.urls[0], headers=cluster.headers, timeout=2 * DEADLINE_S, trust_env=False
    ) as http:
        neighbour = Neighbour(http, history)
        await neighbour.ask_for(Phase("warm-up"), 1)
        for name, names in attacks.items():
            calm = Phase("calm")
            await neighbour.ask_for(calm, n_requests)
            phase = Phase(name)
            cluster.reset_peaks()
            disturbance = keep_cores_busy()
            if names:
                disturbance = attack(cluster, phase, names, n_stories)
            async with disturbance:
                await neighbour.ask_for(phase, n_requests, names)
            phase.peak_mb = cluster.read_peak_mb()
            phases += [calm, phase]
            print(write_row(phase, calm), file=sys.stderr, flush=True)
            await cluster.wait_until_idle()
    return phases


def merge_calm(phases: Iterable[Phase]) -> Phase:
    """Return all calm phases as one."""
    merged = Phase("calm")
    for phase in phases:
        if phase.name == "calm":
            merged.counts += phase.counts
            for grader, waits in phase.waits.items():
                merged.waits[grader] += waits
    return merged


def write_rows(phases: Sequence[Phase]) -> Iterator[str]:
    """Yield a table: a row for the calm phases and one for each attack."""
    calm = merge_calm(phases)
    columns = ["attack"]
    columns += [f"{grader}: requests, p50 / p99 / max in ms, p99 by calm" for grader in GRADERS]
    columns += ["neighbour's 429", "its other failures", "API, MiB", "attacker's answers"]
    yield f"| {' | '.join(columns)} |"
    yield "|---|---|---|--:|--:|--:|---|"
    for phase in [calm, *(phase for phase in phases if phase.name != "calm")]:
        yield write_row(phase, calm)


def write_row(phase: Phase, calm: Phase) -> str:
    cells = [phase.name]
    for grader in GRADERS:
        waits = [statistics.median(phase.waits[grader]), phase.get_percentile(grader, 0.99)]
        waits.append(max(phase.waits[grader]))
        ratio = waits[1] / calm.get_percentile(grader, 0.99)
        in_ms = " / ".join(f"{1000 * wait:.0f}" for wait in waits)
        cells.append(f"{len(phase.waits[grader])}, {in_ms}, {ratio:.2f}")
    failures = phase.counts.total() - phase.counts["status 200"] - phase.counts["status 429"]
    answers = ", ".join(f"{name}: {number}" for name, number in sorted(phase.answers.items()))
    cells += [str(phase.counts["status 429"]), str(failures), str(phase.peak_mb), answers]
    return f"| {' | '.join(cells)} |"


def find_harm(cluster: Cluster, history: History, phases: Iterable[Phase]) -> list[str]:
    """Return what the neighbour suffered, in words: refusals, failures, wrong verdicts, dead
    processes."""
    harm = [*history.breaches]
    for phase in phases:
        for name, number in phase.counts.items():
            if name != "status 200":
                harm.append(f"{phase.name}: {number} requests of the neighbour: {name}")
        for name, number in phase.answers.items():
            if name == "500":
                harm.append(f"{phase.name}: {number} answers of status 500 to the attacker")
    harm += [f"no verdict: {one}" for one in history.lost()]
    return harm + cluster.defects()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=200, help="per grader and phase, at least")
    parser.add_argument("--stories", type=int, default=64, help="of full length, in one request")
    parser.add_argument("--max-depth", type=int, default=20_000, help="of each queue")
    parser.add_argument("--only", choices=EACH_AND_ALL, help="one row")
    arguments = parser.parse_args()
    attacks = EACH_AND_ALL
    if arguments.only:
        attacks = {arguments.only: EACH_AND_ALL[arguments.only]}
    history = History()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        cluster = TenantCluster(folder, max_depth=arguments.max_depth)
        stack.enter_context(cluster.running())
        comparing = compare(cluster, history, attacks, arguments.requests, arguments.stories)
        phases = asyncio.run(comparing)
        print(f"{platform.machine()}, {os.cpu_count()} cores\n")
        for row in write_rows(phases):
            print(row)
        harm = find_harm(cluster, history, phases)
    for line in harm[:40]:
        print(line, file=sys.stderr)
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main())
