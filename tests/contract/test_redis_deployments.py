"""Redis as it is run in earnest: users with few rights, TLS, Sentinels. The queue itself is
`test_broker.py`'s."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError

from gradus.errors import Misuse, QueueFault
from services.broker import (
    DEFAULT_FAIR_SHARE,
    MAX_DELIVERIES,
    MAX_FAIR_SHARES,
    Broker,
    BrokerSettings,
    Claim,
    FairShare,
    Job,
    QueueState,
)
from services.broker.from_url import open_broker
from services.broker.streams import StreamsBroker, scripts
from services.broker.streams.scripts import build_library
from services.broker.workers import Registration, list_workers, wait_for_queue
from tests.conftest import Cli
from tests.fake_grader import INFO
from tests.graders import described
from tests.ports import free_port
from tests.redis_cluster import RedisCluster

SOON_S = 20.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""
REDIS_FILES = Path(__file__).parents[2] / "deploy/redis"
Start = Callable[..., None]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `redis-server ARGS`; all end with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def started(*args: str) -> None:
        if shutil.which("redis-server") is None:
            pytest.skip("redis-server is not installed")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running.append(subprocess.Popen(["redis-server", *args], cwd=tmp_path, **quiet))

    yield started
    for process in running:
        process.kill()
        process.wait()


@asynccontextmanager
async def opened(
    *urls: str, broker_settings: BrokerSettings | None = None
) -> AsyncIterator[list[Broker]]:
    brokers = [open_broker(url, broker_settings) for url in urls]
    try:
        async with asyncio.timeout(SOON_S):
            while not await answers(brokers[0]):  # noqa: ASYNC110  (another process starts)
                await asyncio.sleep(0.05)
        yield brokers
    finally:
        for broker in brokers:
            await broker.close()


async def started(redis: Redis) -> None:
    async with asyncio.timeout(SOON_S):
        while True:
            with suppress(RedisError):
                await redis.ping()
                return
            await asyncio.sleep(0.05)


async def answers(broker: Broker) -> bool:
    with suppress(QueueFault):
        await broker.depth("ocaml")
        return True
    return False


def jobs(n_jobs: int, name: str = "job") -> list[Job]:
    return [Job(f"ocaml:{name}-{n}", "ocaml", "{}") for n in range(n_jobs)]


async def graded(asking: Broker, working: Broker, batch: list[Job]) -> None:
    """Submit, claim, renew, finish, wait."""
    await asking.submit(batch)
    while await asking.depth("ocaml"):
        claims = await working.claim("ocaml", "w", 8, 1.0)
        assert await working.renew(claims) == []
        for claim in claims:
            assert await working.finish(claim, "{}", cache=True)
    job_ids = [job.id for job in batch]
    found = [job_id async for job_id, _ in asking.wait(job_ids, SOON_S)]
    assert sorted(found) == sorted(job_ids)


# ---------------------------------------------------------------------- one user each


ROLES = ("api", "worker-ocaml", "worker-rust", "metrics", "scaler")
SCALERS_SCRIPT = (
    "return redis.call(redis.call('type', KEYS[1]).ok == 'zset' and 'zcard' or 'llen', KEYS[1])"
)
"""What KEDA asks of a list's length, whatever type the key is of."""


def write_users(folder: Path, *options: str) -> Path:
    """The shipped users, whose passwords are their names, and one more for the test."""
    for role in ROLES:
        (folder / f"redis-{role}.password").write_text(role)
    users = subprocess.run(
        [REDIS_FILES / "users.sh", folder, *options], check=True, capture_output=True, text=True
    )
    file = folder / "users.acl"
    file.write_text(users.stdout + "user admin on >admin ~* &* +@all\n")
    return file


@pytest.fixture
def address(start: Start, tmp_path: Path) -> str:
    """A Redis with the shipped users."""
    file = write_users(tmp_path)
    port = free_port()
    start("--save", "", "--bind", "127.0.0.1", "--port", str(port), "--aclfile", str(file))
    return f"127.0.0.1:{port}"


async def do_everything(*urls: str) -> None:
    """What the roles `api` and `worker-ocaml` do, at a URL each."""
    async with opened(*urls, broker_settings=BrokerSettings(lease_s=0.3)) as (asking, working):
        await working.heartbeat("w", INFO, 60)
        assert [info.grader for info in await asking.graders()] == [INFO.grader]
        await graded(asking, working, jobs(300))
        await asking.submit(jobs(300), FairShare("again"))
        for n in range(MAX_FAIR_SHARES + 2):
            await asking.submit(jobs(1, f"one-{n}"), FairShare(f"run-{n}"))
        await asking.cancel("ocaml", [f"ocaml:one-{n}-0" for n in range(MAX_FAIR_SHARES + 2)])
        await asking.submit(jobs(1, "returned"))
        await asking.submit(jobs(1, "returned"), DEFAULT_FAIR_SHARE)
        [claim] = await working.claim("ocaml", "w", 1, SOON_S)
        await working.release(claim)
        for n in range(MAX_DELIVERIES - 1):
            async with asyncio.timeout(SOON_S):
                while not (claims := await working.claim("ocaml", f"w{n}", 1, 1.0)):
                    pass
        assert await working.finish(claims[0], "{}", cache=False, dead_letter=True)
        assert [letter.job.id for letter in await asking.dead_letters("ocaml")] == [
            "ocaml:returned-0"
        ]
        registration = Registration(working, "w2", INFO, described(INFO))
        heartbeats = asyncio.create_task(registration.keep_alive())
        async with asyncio.timeout(SOON_S):
            while not registration.registered_at:  # noqa: ASYNC110  (a loop sets it)
                await asyncio.sleep(0.01)
        heartbeats.cancel()
        await registration.end(MemoryError())
        causes: list[str] = []
        async with asyncio.timeout(SOON_S):  # until the registration has lapsed
            while "MemoryError" not in causes:
                causes = [worker.cause for worker in await list_workers(asking)]
        await working.save_note(f"grader:{INFO.grader}", "{}", 60)
        assert await asking.get_notes([f"grader:{INFO.grader}"]) == {f"grader:{INFO.grader}": "{}"}
        await asking.save_note("key", "text", 60)
        assert await asking.get_notes(["key"]) == {"key": "text"}
        assert (await asking.get_queue_stats("ocaml")).dead_letters == 1
        await asking.remove_dead_letters("ocaml", ["ocaml:returned-0"])
        assert await asking.dead_letters("ocaml") == []
        await asking.submit(jobs(2, "revoked"))
        [one, other] = [job.id for job in await asking.list_unfinished("ocaml")]
        assert await asking.revoke("ocaml", [one, other]) == 2
        await asking.set_queue_state("ocaml", QueueState.DRAINING)
        assert await asking.get_queue_state("ocaml") == QueueState.DRAINING
        await working.heartbeat("w", INFO, 0)


async def test_the_rights_of_each_role_are_enough_for_everything_it_does(address: str) -> None:
    await do_everything(*(f"redis://{role}:{role}@{address}/0" for role in ("api", "worker-ocaml")))
    async with Redis.from_url(f"redis://admin:admin@{address}/0", decode_responses=True) as admin:
        assert await admin.acl_log() == []


@pytest.mark.slow
async def test_the_rights_of_each_role_are_enough_in_a_cluster(tmp_path: Path) -> None:
    acl_file = write_users(tmp_path, "cluster")
    with RedisCluster(tmp_path, replicated=False, acl_file=acl_file).running() as cluster:
        roles = ("api", "worker-ocaml")
        await do_everything(*(cluster.build_url(1, f"{role}:{role}@") for role in roles))
        for node in cluster.nodes:
            assert node.call("ACL", "LOG") == []
            with pytest.raises(NoPermissionError):
                node.call_as("worker-rust", "EXISTS", "gradus:{0}:queue:ocaml")


FORBIDDEN = [
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("SHUTDOWN",),
    ("MONITOR",),
    ("MODULE", "LIST"),
    ("CLIENT", "LIST"),
    ("SCRIPT", "FLUSH"),
    ("FUNCTION", "LIST"),
    ("REPLICAOF", "127.0.0.1", "1"),
    ("PUBLISH", "any", "text"),
    ("GET", "others"),
    ("SET", "others", "1"),
    ("EVAL", "return redis.call('GET', 'others')", "0"),
    ("EVAL", "return redis.call('FLUSHALL')", "0"),
]


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_can_do_what_none_needs(address: str, role: str) -> None:
    async with (
        opened(f"redis://api:api@{address}/0"),
        Redis.from_url(f"redis://{role}:{role}@{address}/0") as redis,
    ):
        for command in FORBIDDEN:
            with pytest.raises(RedisError) as refused:
                await redis.execute_command(*command)
            words = str(refused.value)
            in_script = (
                "The user executing the script can't" in words or "ACL failure in script" in words
            )
            assert isinstance(refused.value, NoPermissionError) or in_script, command


OTHERS = {
    "worker-ocaml": [
        ("GET", "gradus:note:job:1"),
        ("XREAD", "STREAMS", "gradus:inbox:1", "0"),
        ("EVAL", "while true do end", "0"),
        ("EVALSHA", "0" * 40, "0"),
        ("FUNCTION", "LOAD", "REPLACE", build_library()),
        ("XREADGROUP", "GROUP", "workers", "me", "STREAMS", "gradus:jobs:rust", ">"),
        ("SET", "gradus:result:rust:1", '{"reward": 1}'),
        ("SET", "gradus:uncached:rust:1", '{"reward": 1}'),
        ("SET", "gradus:worker:rust:w", "{}"),
        ("SET", "gradus:share", "0.001"),
        ("SET", "gradus:state:ocaml", "paused"),
        ("HGETALL", "gradus:job:rust:1"),
        ("DEL", "gradus:queue:rust"),
    ],
    "api": [
        ("XREADGROUP", "GROUP", "workers", "me", "STREAMS", "gradus:jobs:ocaml", ">"),
        ("EVAL", "return 1", "0"),
        ("SET", "gradus:result:1", '{"reward": 1}'),
        ("SET", "gradus:worker:me", "{}"),
    ],
    "metrics": [
        ("EVAL", "return 1", "0"),
        ("GET", "gradus:result:1"),
        ("DEL", "gradus:queue:ocaml"),
    ],
    "scaler": [
        ("GET", "gradus:result:1"),
        ("DEL", "gradus:queue:ocaml"),
        ("ZRANGE", "gradus:queue:ocaml", "0", "-1"),
        ("XRANGE", "gradus:jobs:ocaml", "-", "+"),
    ],
}
"""By role, commands of other roles."""


@pytest.mark.parametrize("role", OTHERS)
async def test_no_role_can_do_what_another_does(address: str, role: str) -> None:
    async with (
        opened(f"redis://api:api@{address}/0"),
        Redis.from_url(f"redis://{role}:{role}@{address}/0") as redis,
    ):
        for command in OTHERS[role]:
            with pytest.raises(NoPermissionError):
                await redis.execute_command(*command)


async def test_metrics_sees_how_long_queues_are(address: str) -> None:
    async with opened(f"redis://api:api@{address}/0") as [asking]:
        await asking.submit(jobs(3))
        async with Redis.from_url(
            f"redis://metrics:metrics@{address}/0", decode_responses=True
        ) as redis:
            assert (
                await redis.zcard("gradus:queue:ocaml"),
                await redis.xlen("gradus:jobs:ocaml"),
            ) == (3, 0)
            assert (await redis.info("memory"))["used_memory"] > 0


async def test_a_worker_waits_until_a_client_that_may_load_functions_has_come(address: str) -> None:
    async with opened(f"redis://api:api@{address}/0") as [asking]:
        async with Redis.from_url(f"redis://admin:admin@{address}/0") as admin:
            await admin.function_flush()
        impatient = StreamsBroker(f"redis://worker-ocaml:worker-ocaml@{address}/0", patience_s=0.2)
        with pytest.raises(QueueFault, match="has no functions of this release"):
            await impatient.claim("ocaml", "w", 1, 0)
        await impatient.close()
        working = open_broker(f"redis://worker-ocaml:worker-ocaml@{address}/0")
        waiting = asyncio.create_task(working.claim("ocaml", "w", 1, SOON_S))
        await asyncio.sleep(0.3)
        await asking.submit(jobs(1))
        assert [claim.job.id for claim in await waiting] == ["ocaml:job-0"]
        await working.close()


async def test_a_worker_says_at_once_what_to_run_and_who_may(
    address: str, caplog: pytest.LogCaptureFixture, gradus: Cli
) -> None:
    """A worker of a release whose functions are not loaded."""
    async with Redis.from_url(f"redis://admin:admin@{address}/0") as admin:
        await started(admin)
    urls = {user: f"redis://{user}:{user}@{address}/0" for user in ("api", "worker-ocaml")}
    working = open_broker(urls["worker-ocaml"])
    waiting = asyncio.create_task(wait_for_queue(working, "ocaml", asyncio.Event()))
    async with asyncio.timeout(SOON_S):
        while not caplog.records:  # noqa: ASYNC110  (a log has no event)
            await asyncio.sleep(0.01)
    assert "gradus queue migrate" in caplog.text
    assert "the user `api`" in caplog.text
    with pytest.raises(QueueFault, match="use the URL of the user `api`"):
        await working.migrate()
    refused = await asyncio.to_thread(gradus, "queue", "migrate", "--redis", urls["worker-ocaml"])
    assert refused.status == 3
    assert "the user `api`" in refused.err
    assert not waiting.done()
    loaded = await asyncio.to_thread(gradus, "queue", "migrate", "--redis", urls["api"])
    assert loaded.status == 0
    assert await waiting
    again = await asyncio.to_thread(gradus, "queue", "migrate", "--redis", urls["api"])
    assert again.status == 0
    await working.close()


async def test_an_api_that_only_looks_for_workers_loads_the_functions_that_they_wait_for(
    address: str,
) -> None:
    urls = [f"redis://{role}:{role}@{address}/0" for role in ("metrics", "api", "worker-ocaml")]
    async with Redis.from_url(urls[0]) as redis:
        await started(redis)
    asking, working = open_broker(urls[1]), open_broker(urls[2])
    registration = asyncio.create_task(working.heartbeat("w", INFO, 60))
    async with asyncio.timeout(SOON_S):
        while not await asking.graders():  # noqa: ASYNC110  (another coroutine registers)
            await asyncio.sleep(0.05)
    await registration
    await asking.close()
    await working.close()


async def test_functions_of_two_releases_lie_beside_each_other(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(f"redis://api:api@{address}/0") as [asking]:
        await asking.submit(jobs(1))
        monkeypatch.setattr(scripts, "VERSION", "anothers")
        await asking.submit(jobs(1, "later"))
        monkeypatch.undo()
        await asking.submit(jobs(1, "last"))
        assert await asking.depth("ocaml") == 3
        async with Redis.from_url(f"redis://admin:admin@{address}/0") as admin:
            assert len(await admin.function_list()) == 2


async def test_a_worker_cannot_use_the_functions_on_another_grader(address: str) -> None:
    urls = [f"redis://{role}:{role}@{address}/0" for role in ("api", "worker-ocaml")]
    async with opened(*urls) as (asking, working):
        await asking.submit([Job("rust:1", "rust", "{}")])
        with pytest.raises(QueueFault, match="no permissions"):
            await working.claim("rust", "w", 1, 0)
        with pytest.raises(QueueFault, match="no permissions"):
            await working.heartbeat(
                "w", INFO.model_copy(update={"name": "rust", "slots": 10**6}), 60
            )
        stolen = Claim(Job("rust:1", "rust", "{}"), "1-1 1 w", 1, 0.0)
        with pytest.raises(QueueFault, match="no permissions"):
            await working.finish(stolen, "{}", cache=True)


async def test_a_worker_that_registers_under_another_graders_name_is_not_listed(
    address: str,
) -> None:
    async with opened(f"redis://admin:admin@{address}/0") as [broker]:
        await broker.heartbeat("w", INFO, 60)
        async with Redis.from_url(f"redis://admin:admin@{address}/0") as admin:
            forged = INFO.model_copy(update={"name": "rust", "slots": 10**6})
            await admin.set("gradus:worker:ocaml:w", forged.model_dump_json(), ex=60)
        assert await broker.graders() == []


async def test_the_scaler_counts_what_is_queued_and_what_runs(address: str) -> None:
    urls = [f"redis://{role}:{role}@{address}/0" for role in ("api", "worker-ocaml")]
    async with opened(*urls) as (asking, working):
        await asking.submit(jobs(3))
        assert len(await working.claim("ocaml", "w", 2, SOON_S)) == 2
        async with Redis.from_url(f"redis://scaler:scaler@{address}/0") as redis:
            assert await redis.eval(SCALERS_SCRIPT, 1, "gradus:queue:ocaml") == 1
            assert await redis.eval(SCALERS_SCRIPT, 1, "gradus:queue:rust") == 0
            assert (
                await redis.xlen("gradus:jobs:ocaml"),
                await redis.xlen("gradus:jobs:rust"),
            ) == (2, 0)


async def test_the_scalers_script_can_change_nothing(address: str) -> None:
    async with opened(f"redis://api:api@{address}/0") as [asking]:
        await asking.submit(jobs(3))
        async with Redis.from_url(f"redis://scaler:scaler@{address}/0") as redis:
            with pytest.raises(RedisError, match="can't|ACL failure"):
                await redis.eval("return redis.call('DEL', KEYS[1])", 1, "gradus:queue:ocaml")
        assert await asking.depth("ocaml") == 3


async def test_nobody_gets_in_without_a_name(address: str) -> None:
    async with opened(f"redis://api:api@{address}/0"):
        nobody = StreamsBroker(f"redis://{address}/0", patience_s=0.2)
        with pytest.raises(QueueFault, match="Authentication"):
            await nobody.depth("ocaml")
        await nobody.close()


@pytest.mark.parametrize(
    ("name", "password", "told"),
    [
        ("api", "", "is missing or empty"),
        ("worker", "x", "no such role"),
        ("others", "x", "no such role"),
    ],
)
def test_a_user_without_a_password_or_a_role_is_refused(
    tmp_path: Path, name: str, password: str, told: str
) -> None:
    (tmp_path / f"redis-{name}.password").write_text(password)
    said = subprocess.run(
        [REDIS_FILES / "users.sh", tmp_path], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout) == (2, "")
    assert f"redis-{name}.password" in said.stderr
    assert told in said.stderr


# --------------------------------------------------------------------------------------------- TLS


def openssl(folder: Path, *args: str) -> None:
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)


NEW_KEY = ("-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def make_authority(folder: Path, name: str) -> None:
    subject = ("-subj", f"/CN={name}", "-days", "2", *NEW_KEY)
    openssl(folder, "req", "-x509", *subject, "-keyout", f"{name}.key", "-out", f"{name}.pem")


@pytest.fixture
def tls_address(start: Start, tmp_path: Path) -> str:
    make_authority(tmp_path, "ours")
    make_authority(tmp_path, "others")
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(tmp_path, "req", *NEW_KEY, "-subj", "/CN=redis", "-keyout", "key", "-out", "asked")
    signed = (
        "-CA",
        "ours.pem",
        "-CAkey",
        "ours.key",
        "-CAcreateserial",
        "-days",
        "2",
        "-extfile",
        "names",
    )
    openssl(tmp_path, "x509", "-req", "-in", "asked", *signed, "-out", "certificate")
    port = free_port()
    files = [("cert-file", "certificate"), ("key-file", "key"), ("ca-cert-file", "ours.pem")]
    options = [word for name, file in files for word in (f"--tls-{name}", str(tmp_path / file))]
    start(
        "--save",
        "",
        "--bind",
        "127.0.0.1",
        "--port",
        "0",
        "--tls-port",
        str(port),
        "--tls-auth-clients",
        "optional",
        *options,
    )
    return f"127.0.0.1:{port}"


async def test_a_queue_over_tls_whose_authority_is_named(tls_address: str, tmp_path: Path) -> None:
    url = f"rediss://{tls_address}/0?ssl_ca_certs={tmp_path / 'ours.pem'}"
    async with opened(url, url) as (asking, working):
        await graded(asking, working, jobs(20))


@pytest.mark.parametrize(
    "query", ["", pytest.param("?ssl_ca_certs={}/others.pem", marks=pytest.mark.slow)]
)
async def test_a_server_that_our_authority_did_not_sign_is_not_talked_to(
    tls_address: str, tmp_path: Path, query: str
) -> None:
    async with opened(f"rediss://{tls_address}/0?ssl_ca_certs={tmp_path / 'ours.pem'}"):
        broker = StreamsBroker(f"rediss://{tls_address}/0{query.format(tmp_path)}", patience_s=1)
        with pytest.raises(QueueFault, match="CERTIFICATE_VERIFY_FAILED"):
            await broker.depth("ocaml")
        await broker.close()


@pytest.mark.slow
async def test_a_server_under_another_name_is_not_talked_to(
    tls_address: str, tmp_path: Path
) -> None:
    ours = f"?ssl_ca_certs={tmp_path / 'ours.pem'}"
    async with opened(f"rediss://{tls_address}/0{ours}"):
        broker = StreamsBroker(
            f"rediss://{tls_address.replace('127.0.0.1', 'localhost')}/0{ours}", patience_s=1
        )
        with pytest.raises(QueueFault, match="CERTIFICATE_VERIFY_FAILED"):
            await broker.depth("ocaml")
        await broker.close()


# --------------------------------------------------------------------------------------- Sentinels


@pytest.fixture
def sentinel_url(start: Start, tmp_path: Path) -> str:
    """A master, a replica and a Sentinel; before it in the URL stands one that is not there."""
    master, replica, sentinel = free_port(), free_port(), free_port()
    here = ("--save", "", "--bind", "127.0.0.1", "--port")
    start(*here, str(master), "--appendonly", "no")
    start(*here, str(replica), "--replicaof", "127.0.0.1", str(master), "--appendonly", "no")
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"bind 127.0.0.1\ndir {tmp_path}\nport {sentinel}\nsentinel monitor ours 127.0.0.1 {master}"
        " 1\nsentinel down-after-milliseconds ours 300\nsentinel failover-timeout ours 5000\n"
    )
    start(str(file), "--sentinel")
    return f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel}/ours/0"


async def replicated(url: str) -> int:
    """The master's port, once it has a replica that Sentinel knows."""
    sentinel = Redis.from_url(f"redis://{url.split(',')[1].split('/')[0]}/0", decode_responses=True)
    async with sentinel, asyncio.timeout(SOON_S):
        while True:
            with suppress(RedisError):
                replicas = await sentinel.execute_command("SENTINEL", "REPLICAS", "ours")
                if [one for one in replicas if one["master-link-status"] == "ok"]:
                    return int(
                        (
                            await sentinel.execute_command(
                                "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "ours"
                            )
                        )[1]
                    )
            await asyncio.sleep(0.1)


async def test_the_queue_goes_on_with_the_new_master(sentinel_url: str) -> None:
    async with opened(sentinel_url, sentinel_url) as (asking, working):
        old = await replicated(sentinel_url)
        await graded(asking, working, jobs(20))
        await asking.submit(jobs(5, "queued before"))
        async with Redis.from_url(f"redis://127.0.0.1:{old}/0") as master:
            assert await master.execute_command("WAIT", 1, 10_000) == 1
            await master.shutdown(nosave=True)
        async with asyncio.timeout(SOON_S):
            while not await answers(working):
                pass
        await graded(asking, working, jobs(20, "after"))
        assert await replica_is_master(sentinel_url, old)
        assert len(await asking.results([job.id for job in jobs(5, "queued before")])) == 5


async def replica_is_master(url: str, old: int) -> bool:
    async with Redis.from_url(
        f"redis://{url.split(',')[1].split('/')[0]}/0", decode_responses=True
    ) as sentinel:
        return (
            int((await sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "ours"))[1])
            != old
        )


@pytest.mark.parametrize(
    "url", ["redis+sentinel://", "redis+sentinel://host:1", "redis+sentinel://host:x/ours/0"]
)
def test_a_sentinel_url_that_says_too_little_is_misuse(url: str) -> None:
    with pytest.raises(Misuse, match="broker URL"):
        open_broker(url)


async def test_sentinels_that_are_all_away_are_a_fault_that_names_no_password() -> None:
    broker = StreamsBroker(
        f"redis+sentinel://me:geheim@127.0.0.1:{free_port()}/ours/0?sentinel_password=geheim",
        patience_s=0.2,
    )
    with pytest.raises(QueueFault, match="no Sentinel") as fault:
        await broker.depth("ocaml")
    assert "geheim" not in fault.value.message
    await broker.close()
