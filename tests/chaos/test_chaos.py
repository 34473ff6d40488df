"""The queue under real processes that die: nothing is lost, nothing answered twice, nothing made
wrong.

`ledger` says what that means. It only sees HTTP answers; what happened behind them is looked at
afterwards.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from services.broker import MAX_DELIVERIES, Job
from services.broker.from_url import open_broker
from services.broker.jobs import JobPayload
from tests.chaos.cluster import SOON_S, Cluster
from tests.chaos.fault_injection import (
    Chaos,
    cut_network,
    demote_redis,
    freeze_redis,
    freeze_worker,
    kill_redis,
    lose_power,
    reset_connections,
    restart_in_turn,
    restart_redis,
    upgrade,
)
from tests.chaos.history_checker import ANOTHER_RUN, Asker, History, make_completions, poison
from tests.chaos.network_namespace import NetworkNamespace, NoNetworkNamespace
from tests.chaos.previous_release import ROOT, NoHistory, export_previous_release
from tests.chaos.worker import verdict

pytestmark = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="redis-server is not installed"
)


@pytest.fixture(scope="module")
def long_lease_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two APIs and two workers, with a lease that lapses on no busy machine; every test leaves it
    whole."""
    folder = tmp_path_factory.mktemp("long_lease")
    with Cluster(folder, workers=2, lease_s=10 * SOON_S, announcement_s=6).running() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two APIs and three workers with a short lease, one of them in its own network if there can be
    one."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        namespace = None
        with suppress(NoNetworkNamespace):
            namespace = stack.enter_context(NetworkNamespace().running())
        made = Cluster(
            folder,
            workers=2 if namespace else 3,
            lease_s=0.8,
            announcement_s=6,
            namespace=namespace,
        )
        yield stack.enter_context(made.running())


@asynccontextmanager
async def asking(
    cluster: Cluster, completions: list[str], *, redis_dies: bool = False, **more: float
) -> AsyncIterator[History]:
    """Everything is asked for while the block runs; afterwards all of it is settled and nothing is
    left behind."""
    history = History()
    async with cluster.restarting():
        asker = Asker(history, cluster.urls, **more)  # type: ignore[arg-type]
        asked = asyncio.create_task(asker.ask(completions))
        yield history
        await asked
        await asyncio.to_thread(cluster.wait_until_complete)
        await asker.ask_again()
        assert history.breaches == []
        assert history.lost() == []
        assert redis_dies or history.counts[ANOTHER_RUN] == 0
        await nothing_is_left_behind(cluster)


async def nothing_is_left_behind(cluster: Cluster) -> None:
    broker = open_broker(cluster.log_in("api"))
    async with asyncio.timeout(SOON_S):
        while await broker.depth("ocaml"):  # noqa: ASYNC110  (it happens in Redis)
            await asyncio.sleep(0.05)
    await broker.close()


def test_the_ledger_notices_what_is_lost_doubled_or_wrong() -> None:
    history = History()
    right, other, lost = (history.add(completion) for completion in make_completions(3, ms=20))
    good = verdict(right, history.completions[right]).model_dump(mode="json")
    history.check_response([right], [good])
    history.check_result({**good, "wall_ms": 5.0, "cached": True})
    assert history.breaches == []
    for wrong in (
        {**good, "reward": good["reward"] / 2 + 0.1},
        {**good, "id": other, "tests": {"passed": -1, "total": 1}},
        {
            "id": lost,
            "status": "faulted",
            "fault": {"kind": "internal", "message": "", "retryable": True},
        },
        {
            "id": lost,
            "status": "faulted",
            "reward": 0,
            "fault": {"kind": "queue", "message": "", "retryable": True},
        },
        {**good, "id": "nobody's"},
    ):
        history.breaches.clear()
        history.check_result(wrong)
        assert history.breaches
    history.breaches.clear()
    history.check_response([right], [good, good])
    assert history.breaches
    assert history.lost() == [lost]


async def some_are_settled(history: History, number: int, within_s: float = SOON_S) -> None:
    async with asyncio.timeout(within_s):
        while len(history.settled) < number:  # noqa: ASYNC110  (the ledger only watches)
            await asyncio.sleep(0.01)


def runs(cluster: Cluster, completions: list[str]) -> dict[str, int]:
    starts = cluster.starts()
    return {completion: starts[completion] for completion in completions}


async def test_without_disturbance_everything_is_graded_exactly_once_however_often_it_is_asked(
    long_lease_cluster: Cluster,
) -> None:
    completions = make_completions(100, ms=20)
    async with asking(long_lease_cluster, completions * 2) as history:
        pass
    assert set(runs(long_lease_cluster, completions).values()) == {1}
    assert not [name for name in history.counts if name.startswith("fault")]


@pytest.mark.slow
async def test_clients_that_leave_and_come_back_get_the_same_answers(
    long_lease_cluster: Cluster,
) -> None:
    async with asking(long_lease_cluster, make_completions(200, ms=50), leaving=0.5) as history:
        pass
    assert history.counts["requests left by the client"] > 0


@pytest.mark.slow
async def test_workers_restarted_one_after_the_other_under_load_are_not_noticed(
    long_lease_cluster: Cluster,
) -> None:
    completions = make_completions(250, ms=100)
    async with asking(long_lease_cluster, completions) as history:
        await some_are_settled(history, 20)
        await restart_in_turn(long_lease_cluster, long_lease_cluster.workers)
    assert set(runs(long_lease_cluster, completions).values()) == {1}, (
        "a stopped worker finishes what it has begun"
    )
    assert not [name for name in history.counts if name.startswith("fault")]


async def test_apis_restarted_one_after_the_other_under_load_lose_no_answer(
    long_lease_cluster: Cluster,
) -> None:
    async with asking(long_lease_cluster, make_completions(250, ms=100)) as history:
        await some_are_settled(history, 20)
        await restart_in_turn(long_lease_cluster, long_lease_cluster.apis)
    assert history.counts["status 503"] == 0


async def test_jobs_of_killed_workers_are_graded_by_others(cluster: Cluster) -> None:
    completions = make_completions(120, ms=200)
    async with asking(cluster, completions) as history:
        await some_are_settled(history, 20)
        for victim in cluster.workers[:2]:
            victim.signal(signal.SIGKILL)
    assert max(runs(cluster, completions).values()) > 1, (
        "no worker was killed in the middle of a job"
    )
    assert history.counts["healthy submissions whose workers died three times"] == 0


async def test_redis_that_is_killed_and_started_again_loses_nothing(cluster: Cluster) -> None:
    async with asking(cluster, make_completions(150, ms=50), redis_dies=True) as history:
        for number in (30, 90):
            await some_are_settled(history, number)
            await kill_redis(cluster, random.Random(number))


@pytest.mark.slow
async def test_redis_that_is_stopped_and_started_again_on_its_file_loses_nothing(
    cluster: Cluster,
) -> None:
    async with asking(cluster, make_completions(150, ms=50), redis_dies=True) as history:
        for number in (30, 90):
            await some_are_settled(history, number)
            await restart_redis(cluster, random.Random(number))
    assert not [name for name in history.counts if name.startswith("fault")]


async def test_a_master_that_is_demoted_for_a_while_ends_no_worker_and_no_request(
    cluster: Cluster,
) -> None:
    deaths = [one.deaths for one in cluster.processes]
    async with asking(cluster, make_completions(150, ms=50), redis_dies=True) as history:
        for number in (30, 90):
            await some_are_settled(history, number)
            await demote_redis(cluster, random.Random(number))
    assert [one.deaths for one in cluster.processes] == deaths
    assert not [name for name in history.counts if name.startswith("fault")]


@pytest.mark.parametrize(
    "seconds",
    [3, pytest.param(8, marks=pytest.mark.slow), pytest.param(25, marks=pytest.mark.slow)],
)
async def test_requests_wait_for_a_frozen_redis_until_their_deadline(
    cluster: Cluster, seconds: float
) -> None:
    async with asking(
        cluster, make_completions(150, ms=50), redis_dies=True, deadline_s=90
    ) as history:
        await some_are_settled(history, 30)
        await freeze_redis(cluster, seconds)
    assert not [name for name in history.counts if name.startswith("fault")]


@pytest.mark.slow
async def test_a_failover_by_sentinel_ends_no_worker_and_no_request(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=2, announcement_s=6, sentinel=True).running() as cluster:
        async with asking(
            cluster, make_completions(200, ms=50), redis_dies=True, deadline_s=60
        ) as history:
            for number in (30, 90):
                await some_are_settled(history, number)
                await cluster.fail_over()
        assert [one.deaths for one in cluster.processes] == [0, 0, 0, 0]
        assert not [name for name in history.counts if name.startswith("fault")]


async def test_what_redis_forgot_of_its_last_second_is_submitted_or_graded_again(
    cluster: Cluster,
) -> None:
    completions = make_completions(200, ms=50)
    async with asking(cluster, completions, redis_dies=True) as history:
        for number, n_bytes in ((40, 5_000), (120, 100_000)):
            await some_are_settled(history, number)
            await lose_power(cluster, n_bytes)
    assert max(runs(cluster, completions).values()) > 1, "nothing that mattered was forgotten"


async def test_a_worker_that_stood_still_past_its_lease_answers_nothing_twice(
    cluster: Cluster,
) -> None:
    async with asking(cluster, make_completions(120, ms=100)) as history:
        await some_are_settled(history, 20)
        await freeze_worker(cluster, random.Random(1))


@pytest.mark.slow
async def test_a_worker_that_was_cut_off_past_its_lease_answers_nothing_twice(
    cluster: Cluster,
) -> None:
    if cluster.namespace is None:
        pytest.skip(
            "this machine makes no network namespaces for us: they need root and the `ip` command"
        )
    async with asking(cluster, make_completions(120, ms=100)) as history:
        await some_are_settled(history, 20)
        await cut_network(cluster, random.Random(1))


@pytest.mark.parametrize(
    "side", ["drop_incoming", pytest.param("drop_outgoing", marks=pytest.mark.slow)]
)
async def test_a_worker_whose_network_is_cut_in_one_direction_answers_nothing_twice(
    cluster: Cluster, side: str
) -> None:
    if cluster.namespace is None:
        pytest.skip(
            "this machine makes no network namespaces for us: they need root and the `ip` command"
        )
    async with asking(cluster, make_completions(120, ms=100)) as history:
        await some_are_settled(history, 20)
        with getattr(cluster.namespace, side)():
            await asyncio.sleep(2 * cluster.lease_s)


@pytest.mark.slow
async def test_poison_is_buried_after_three_workers_and_takes_nobody_along(
    long_lease_cluster: Cluster,
) -> None:
    """The lease outlasts the test: the deaths themselves are noticed."""
    healthy = make_completions(60, ms=20)
    killer = poison()
    deaths = sum(worker.deaths for worker in long_lease_cluster.workers)
    async with asking(long_lease_cluster, [*healthy[:30], killer, *healthy[30:]]) as history:
        pass
    assert runs(long_lease_cluster, [killer]) == {killer: MAX_DELIVERIES}
    assert sum(worker.deaths for worker in long_lease_cluster.workers) - deaths == MAX_DELIVERIES
    assert history.counts["healthy submissions whose workers died three times"] == 0
    assert killer in [submission_in(letter) for letter in await letters(long_lease_cluster)]


async def letters(cluster: Cluster) -> list[Job]:
    broker = open_broker(cluster.redis.url)
    buried = [letter.job for letter in await broker.dead_letters("ocaml")]
    await broker.close()
    return buried


def submission_in(letter: Job) -> str:
    return JobPayload.model_validate_json(letter.payload).submission.completion


def list_failures(history: History) -> list[str]:
    """Kinds of faults and of statuses other than 200 that clients got."""
    kinds = [name for name in history.counts if name.startswith(("fault", "status"))]
    return [name for name in kinds if name != "status 200"]


async def test_skewed_clocks_of_apis_and_workers_change_nothing(tmp_path: Path) -> None:
    """Every process has another date than Redis."""
    skews_s = (180, -86_400, -180, 86_400, 180)
    made = Cluster(tmp_path, workers=3, lease_s=10 * SOON_S, announcement_s=6, skews_s=skews_s)
    completions = make_completions(60, ms=20)
    with made.running() as cluster:
        async with asking(cluster, completions, deadline_s=60) as history:
            pass
        assert set(runs(cluster, completions).values()) == {1}
    assert not list_failures(history)


async def test_connections_that_are_reset_cost_no_fault_and_no_worker(tmp_path: Path) -> None:
    made = Cluster(tmp_path, workers=2, lease_s=10 * SOON_S, announcement_s=6, proxied=True)
    completions = make_completions(200, ms=20)
    with made.running() as cluster:
        async with asking(cluster, completions, deadline_s=60) as history:
            for number in (10, 60, 110):
                await some_are_settled(history, number)
                await reset_connections(cluster, random.Random(number))
        assert [one.deaths for one in cluster.processes] == [0, 0, 0, 0]
    assert not list_failures(history)


ROLES = ("api", "worker-ocaml")


def make_users(folder: Path) -> Path:
    """The shipped ACL file, with passwords that are the users' names."""
    for role in ROLES:
        (folder / f"redis-{role}.password").write_text(role)
    made = subprocess.run(
        [ROOT / "deploy/redis/users.sh", folder], check=True, capture_output=True, text=True
    )
    file = folder / "users.acl"
    *_, users = made.stdout.partition("\n")  # without the first line, which shuts `default` out
    file.write_text(f"user default on nopass ~* &* +@all\n{users}\n")
    return file


@pytest.mark.parametrize("first", ["workers", "apis"])
async def test_an_upgrade_under_load_loses_nothing_in_either_order(
    tmp_path: Path, first: str
) -> None:
    """Workers may not load functions, as in production; old and new ones share the queue."""
    try:
        previous = export_previous_release(tmp_path / "previous")
    except NoHistory as reason:
        pytest.skip(str(reason))
    made = Cluster(
        tmp_path,
        workers=2,
        lease_s=10 * SOON_S,
        announcement_s=6,
        code=previous,
        acl_file=make_users(tmp_path),
        logins={role: f"{role}:{role}@" for role in ROLES},
    )
    history = History()
    with made.running() as cluster:
        async with cluster.restarting():
            asker = Asker(history, cluster.urls, deadline_s=90)
            upgrading = asyncio.create_task(upgrade_all(cluster, first))
            while not upgrading.done():
                await asker.ask(make_completions(40, ms=50))
            await upgrading
            await asker.ask(make_completions(40, ms=50))
            await asker.ask_again()
        assert history.lost() == history.breaches == []
        assert history.counts[ANOTHER_RUN] == 0
        assert set(cluster.starts().values()) == {1}
        assert [one.code for one in cluster.processes] == [ROOT] * 4
    assert not [name for name in history.counts if name.startswith("fault")]


async def upgrade_all(cluster: Cluster, first: str) -> None:
    broker = open_broker(cluster.log_in("api"))
    await broker.migrate()
    await broker.close()
    orders = [cluster.workers, cluster.apis]
    if first == "apis":
        orders.reverse()
    for processes in orders:
        await upgrade(cluster, processes)


async def test_everything_at_once(cluster: Cluster) -> None:
    """While jobs wait, each kind of disturbance happens at least once."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    chaos = Chaos(cluster, rng, pause_s=(0.1, 0.4))
    completions = [*make_completions(600, ms=100), *make_completions(60, ms=100) * 2, poison()]
    rng.shuffle(completions)
    async with (
        asking(cluster, completions, redis_dies=True, leaving=0.1, seed=seed),
        chaos.injecting(),
    ):
        async with asyncio.timeout(5 * SOON_S):  # a busy machine starts processes slowly
            while not all(chaos.done.values()):  # noqa: ASYNC110  (the disturbances only count)
                await asyncio.sleep(0.05)
