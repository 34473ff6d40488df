"""A cluster of real processes: Redis with its append-only file or a Redis Cluster, APIs, workers.
Starts and ends them; asks nothing.

What dies is started again, as an orchestrator would do it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import httpx
from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.broker.workers import HEARTBEAT_TTL_S
from tests.chaos.network_namespace import NetworkNamespace
from tests.chaos.previous_release import ROOT
from tests.chaos.reset_proxy import ResetProxy
from tests.ports import free_port
from tests.redis_cluster import RedisCluster
from tests.redis_server import RedisServer

SOON_S = 60.0
"""Longer than a start takes on a busy machine."""


class ClusterProcess:
    """One process of the cluster and its successors."""

    def __init__(
        self, name: str, command: list[str], log: Path, code: Path, ahead_s: float
    ) -> None:
        """`ahead_s`: by how much its clock is ahead, where it runs the code of this checkout."""
        self.name = name
        self.code = code
        """Checkout whose code the next start runs."""
        self._ahead_s = ahead_s
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.deaths = 0
        """Starts that were needed because the one before had ended."""

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(self.code)}
        if self.code == ROOT:
            environment["PYTHONPATH"] += f":{ROOT / 'tests/chaos/clock'}"
            environment["CLOCK_AHEAD_S"] = str(self._ahead_s)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.code, env=environment, stdout=log, stderr=log
            )

    def restart_if_dead(self) -> None:
        """Start it again if it ended."""
        if self._process is not None and self._process.poll() is not None:
            self.deaths += 1
            self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def end(self) -> None:
        """For good."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Cluster:
    """`apis` and `workers` of each kind on one Redis; with `namespace`, one worker more, inside it.

    Redis forgets a worker `announcement_s` after it announced itself last; it does so every third
    of that. With `sentinel`, Redis has a replica, and both are found by a Sentinel. `partitions`:
    of a queue in a Redis Cluster, in place of one Redis where there are any. `skews_s`: by how much
    the clocks of the processes are ahead, in turns. With `proxy`, processes reach Redis through it.
    `code`: the checkout that the processes run first. `logins`: `user:password@` of the users `api`
    and `worker-ocaml` in `acl_file`.
    """

    headers: Mapping[str, str] = MappingProxyType({})
    """Headers of requests for the state of the APIs."""

    def __init__(
        self,
        folder: Path,
        *,
        apis: int = 2,
        workers: int = 3,
        slots: int = 4,
        lease_s: float = 2.0,
        announcement_s: float = HEARTBEAT_TTL_S,
        namespace: NetworkNamespace | None = None,
        journal: bool = True,
        sentinel: bool = False,
        partitions: int = 0,
        skews_s: Sequence[float] = (0.0,),
        proxied: bool = False,
        code: Path = ROOT,
        acl_file: Path | None = None,
        logins: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self.lease_s = lease_s
        self._announcement_s = announcement_s
        self.namespace = namespace
        options = []
        if namespace:
            options = ["--bind", "127.0.0.1", namespace.host_address, "--protected-mode", "no"]
        if acl_file:
            options += ["--aclfile", str(acl_file)]
        self.redis = RedisServer(folder, append_only=True, options=options)
        self.redis_url = self.redis.url
        self.proxy = ResetProxy(self.redis.port) if proxied else None
        if self.proxy:
            self.redis_url = f"redis://127.0.0.1:{self.proxy.port}/0"
        self.partitions = partitions
        self.redis_cluster: RedisCluster | None = None
        if partitions:
            self.redis_cluster = RedisCluster(folder)
            self.redis_url = self.redis_cluster.build_url(partitions)
        self._logins = logins
        self._skews_s = itertools.cycle(skews_s)
        self._code = code
        self.replicas: list[RedisServer] = []
        self._sentinel: subprocess.Popen[bytes] | None = None
        if sentinel:
            (folder / "replica").mkdir()
            master = str(self.redis.port)
            self.replicas = [
                RedisServer(
                    folder / "replica",
                    append_only=True,
                    options=["--replicaof", "127.0.0.1", master],
                )
            ]
            self._sentinel_port = free_port()
            self.redis_url = f"redis+sentinel://127.0.0.1:{self._sentinel_port}/ours/0"
        self.journal = folder / "journal"
        self._has_journal = journal
        self._slots = slots
        ports = [free_port() for _ in range(apis)]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self.apis = [self._make_process(f"api-{port}", self._api(port)) for port in ports]
        self.workers = [
            self._make_process(f"worker-{n}", self._worker(f"worker-{n}")) for n in range(workers)
        ]
        if namespace:
            far = self.redis.url.replace("127.0.0.1", namespace.host_address)
            self.isolated_worker = self._make_process(
                "isolated", namespace.inside(self._worker("isolated", far))
            )
            self.workers.append(self.isolated_worker)

    def _make_process(self, name: str, command: list[str]) -> ClusterProcess:
        log = self._folder / f"{name}.log"
        return ClusterProcess(name, command, log, self._code, next(self._skews_s))

    def log_in(self, user: str) -> str:
        """The URL of Redis for this user."""
        return self.redis_url.replace("redis://", f"redis://{self._logins.get(user, '')}")

    def _api(self, port: int) -> list[str]:
        options = ["--redis", self.log_in("api"), "--port", str(port)]
        return [sys.executable, "-m", "gradus", "serve", *options]

    def _worker(self, name: str, redis: str | None = None) -> list[str]:
        options = {
            "redis": redis or self.log_in("worker-ocaml"),
            "name": name,
            "lease": self.lease_s,
            "slots": self._slots,
        }
        options["announcement"] = self._announcement_s
        command = [sys.executable, "-m", "tests.chaos.worker"]
        command += ["--journal", str(self.journal)] if self._has_journal else []
        return command + [
            word for option, value in options.items() for word in (f"--{option}", str(value))
        ]

    def drop_last_writes(self, n_bytes: int) -> None:
        """What power loss does to a Redis that is down: the last writes are not in its append-only
        file."""
        (log,) = (self._folder / "appendonlydir").glob("*.incr.aof")
        os.truncate(log, max(log.stat().st_size - n_bytes, 0))

    @property
    def processes(self) -> list[ClusterProcess]:
        return [*self.apis, *self.workers]

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        with ExitStack() as stack:
            if self.proxy:
                stack.enter_context(self.proxy.running())
            if self.redis_cluster:
                stack.enter_context(self.redis_cluster.running())
            else:
                stack.enter_context(self._running_servers())
            stack.enter_context(self._running_processes())
            yield self

    @contextmanager
    def _running_servers(self) -> Iterator[None]:
        try:
            for server in (self.redis, *self.replicas):
                server.start()
            if self.replicas:
                self._start_sentinel()
            yield
        finally:
            if self._sentinel is not None:
                self._sentinel.kill()
                self._sentinel.wait()
            for server in (self.redis, *self.replicas):
                server.stop()

    @contextmanager
    def _running_processes(self) -> Iterator[None]:
        try:
            for process in self.processes:
                process.start()
            self.wait_until_complete()
            yield
        finally:
            for process in self.processes:
                process.end()

    def _start_sentinel(self) -> None:
        file = self._folder / "sentinel.conf"
        file.write_text(
            f"bind 127.0.0.1\ndir {self._folder}\nport {self._sentinel_port}\n"
            f"sentinel monitor ours 127.0.0.1 {self.redis.port} 1\n"
            "sentinel down-after-milliseconds ours 2000\nsentinel failover-timeout ours 6000\n"
        )
        with (self._folder / "sentinel.log").open("ab") as log:
            command = ["redis-server", str(file), "--sentinel"]
            self._sentinel = subprocess.Popen(command, stdout=log, stderr=log)

    async def fail_over(self) -> None:
        """`SENTINEL FAILOVER`; returns when another Redis is the master."""
        async with Redis.from_url(
            f"redis://127.0.0.1:{self._sentinel_port}/0", decode_responses=True
        ) as sentinel:

            async def master() -> str:
                return str(
                    (await sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "ours"))[
                        1
                    ]
                )

            before = await master()
            is_told = False
            async with asyncio.timeout(SOON_S):
                while await master() == before:
                    if not is_told:
                        with suppress(RedisError):  # NOGOODSLAVE: the replica is not connected yet
                            await sentinel.execute_command("SENTINEL", "FAILOVER", "ours")
                            is_told = True
                    await asyncio.sleep(0.1)

    def wait_until_complete(self, without: int | None = None) -> None:
        """Every API answers and knows every worker, and the process of this number has a
        successor."""
        give_up_at = time.monotonic() + SOON_S
        with httpx.Client(timeout=10, headers=self.headers) as http:
            while without in [one.pid for one in self.processes] or not all(
                self._is_complete(http, url) for url in self.urls
            ):
                if time.monotonic() > give_up_at:
                    raise RuntimeError(
                        f"the cluster does not come up; see the logs in {self._folder}"
                    )
                time.sleep(0.05)

    def _is_complete(self, http: httpx.Client, url: str) -> bool:
        try:
            graders = http.get(f"{url}/v1/graders").json().get("graders", [])
        except (httpx.TransportError, ValueError):
            return False
        return bool(sum(grader["workers"] for grader in graders) == len(self.workers))

    @asynccontextmanager
    async def restarting(self) -> AsyncIterator[None]:
        """Whoever dies meanwhile is started again."""

        async def keep() -> None:
            while True:
                for process in self.processes:
                    process.restart_if_dead()
                await asyncio.sleep(0.05)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    def defects(self) -> list[str]:
        """What the logs say of failures that nobody expected: every status 500 of an API has its
        place there."""
        logs = [
            (self._folder / f"{one.name}.log").read_text().splitlines() for one in self.processes
        ]
        return [
            line
            for lines in logs
            for line in lines
            if '"level": "error"' in line or "Traceback" in line
        ]

    def starts(self) -> Counter[str]:
        """By completion: how often a grader was started on it."""
        return (
            Counter(self.journal.read_text().splitlines()) if self.journal.exists() else Counter()
        )
