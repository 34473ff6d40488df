"""A real worker whose grader is trivial, and a real server, for tests of the API and its client.
Judges no code.

The completion says what happens to it: `reward 0.5` is that verdict, `fault` is a fault, `late` is
somebody's deadline, `nonsense` is an answer that is no result, and `hold` is not answered until the
worker is told to let go.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from gradus.contract import Diagnostic, Faulted, Graded, Stage, TestCount, build_faulted
from gradus.descriptions import GraderInfo
from gradus.errors import FaultKind
from services.api.server import serve
from services.api.settings import ApiSettings
from services.broker import Broker, BrokerSettings, Claim
from services.broker.jobs import JobPayload
from services.broker.memory import MemoryBroker
from services.event_loop import run, stop_on_signals

INFO = GraderInfo(
    name="ocaml",
    revision="r1",
    toolchain="echo 1",
    rubrics=("ocaml/graduated@1", "ocaml/binary@1"),
    sandbox="none",
)
HIDDEN = "let () = assert (secret_oracle 42)"
PROMPT = "please write the secret prompt"
SETTINGS: dict[str, Any] = {"registry_ttl_s": 0.0, "worker_grace_s": 0.0}


def submission(submission_id: str, completion: str = "reward 1", **changes: Any) -> dict[str, Any]:
    task = {"tests": HIDDEN} | changes.pop("task", {})
    return {"id": submission_id, "prompt": PROMPT, "completion": completion, "task": task} | changes


class EchoWorker:
    """Claims and finishes until it is stopped."""

    def __init__(self, broker: Broker, info: GraderInfo = INFO) -> None:
        self.broker = broker
        self.info = info
        self.graded: Counter[str] = Counter()
        """By completion: how often it was worked on."""
        self.holding = asyncio.Event()
        """Set once something is held."""
        self.letting_go = asyncio.Event()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[EchoWorker]:
        await self.broker.heartbeat("echo", self.info, 600)
        loop = asyncio.create_task(self._work())
        try:
            yield self
        finally:
            self.letting_go.set()
            loop.cancel()
            with suppress(asyncio.CancelledError):
                await loop
            await self.broker.heartbeat("echo", self.info, 0)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                for claim in await self.broker.claim(self.info.name, "echo", 16, 1.0):
                    group.create_task(self._finish(claim))

    async def _finish(self, claim: Claim) -> None:
        payload = JobPayload.model_validate_json(claim.job.payload)
        completion = payload.submission.completion
        self.graded[completion] += 1
        if completion.startswith("hold"):
            self.holding.set()
            await self.letting_go.wait()
        result = self._result(payload, completion)
        text = "[]" if completion == "nonsense" else result.model_dump_json()
        await self.broker.finish(claim, text, cache=isinstance(result, Graded))

    def _result(self, payload: JobPayload, completion: str) -> Graded | Faulted:
        submission_id = payload.submission.id
        if completion == "late" and self.graded[completion] == 1:
            return build_faulted(
                submission_id,
                FaultKind.DEADLINE,
                "too late for whoever asked first",
                retryable=True,
            )
        if completion == "fault":
            return build_faulted(submission_id, FaultKind.SANDBOX, "the box broke", retryable=True)
        reward = float(completion.split()[1]) if completion.startswith("reward") else 1.0
        return Graded(
            id=submission_id,
            reward=reward,
            passed=reward == 1,
            stage=Stage.TESTS,
            components={"tests": reward},
            tests=TestCount(passed=int(reward), total=1),
            diagnostics=(
                Diagnostic(stage=Stage.TYPES, message="a line separator\u2028 and a next line\x85"),
            ),
            rubric=payload.rubric,
            grader=self.info.grader,
            toolchain=self.info.toolchain,
            flags=("odd",) if completion == "flagged" else (),
            cpu_ms=1.0,
            wall_ms=2.0,
        )


class Service:
    """A server with its own broker and worker in another thread, on a free port of this machine."""

    def __init__(
        self,
        broker_settings: BrokerSettings | None = None,
        *,
        worker: bool = True,
        port: int = 0,
        **settings: Any,
    ) -> None:
        self._broker_settings = broker_settings
        self._has_worker = worker
        self._port = port
        self._settings = ApiSettings(**(SETTINGS | settings))
        self._ready = threading.Event()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[Service]:
        thread = threading.Thread(target=lambda: run(self._run()))
        thread.start()
        assert self._ready.wait(20)
        try:
            yield self
        finally:
            self.call(self._stop)
            thread.join(20)

    def call(self, action: Any, *args: Any) -> Any:
        """The result of a function that is run in the server's thread."""
        done: threading.Event = threading.Event()
        found: list[Any] = []

        def run() -> None:
            found.append(action(*args))
            done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(20)
        return found[0]

    def _stop(self) -> None:
        self.worker.letting_go.set()
        self._stopping.set()

    def _on_ready(self, url: str) -> None:
        self.url = url
        self._ready.set()

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.broker = MemoryBroker(self._broker_settings)
        self.worker = EchoWorker(self.broker)
        serving = serve(
            self.broker,
            "127.0.0.1",
            self._port,
            settings=self._settings,
            stop=self._stopping,
            on_ready=self._on_ready,
        )
        if not self._has_worker:
            await serving
            return
        async with self.worker.working():
            await serving


def serve_in_process(port: int, holds: bool, **settings: Any) -> None:
    """The main function of a process that serves. It writes no log. With `holds`, `hold`
    submissions get no result."""

    async def serving() -> None:
        broker = MemoryBroker()
        worker = EchoWorker(broker)
        if not holds:
            worker.letting_go.set()
        chosen = ApiSettings(**(SETTINGS | {"heartbeat_s": 0.1} | settings))
        with stop_on_signals() as stop:
            async with worker.working():
                await serve(broker, "127.0.0.1", port, settings=chosen, stop=stop)

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    run(serving())


if __name__ == "__main__":
    serve_in_process(int(sys.argv[1]), holds="hold" in sys.argv)
