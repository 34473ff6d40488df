"""A real worker process whose grader takes a stated time, or kills its own process. Judges no code.

A completion reads `burn 20 number 7 of 1`: 20 ms of CPU, and the verdict is a function of the text
alone; or `sleep 20 number 7 of 1`: 20 ms that cost no CPU; or `hold 90 number 7
of 1`: a box that comes to hold 90 MB; or `poison number 7 of 1`: the process
that starts it is gone. The worker writes starts to a journal, for people: the ledger does not read
it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import services.broker.workers
import services.event_loop
import services.worker
from gradus.contract import Graded, Stage, Submission, TestCount
from gradus.descriptions import GraderDescription, GraderInfo
from services.broker import BrokerSettings
from services.broker.from_url import open_broker
from services.sandbox import Command, Limits
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.memory_budget import BoxMemory
from tests.graders import described

RUBRIC = "ocaml/graduated@1"
INFO = GraderInfo(
    name="ocaml", revision="chaos", toolchain="burner 1", rubrics=(RUBRIC,), sandbox="none"
)
TESTS = 16
_BLOCK = bytes(65536)
BOX_MB = 180
"""Memory limit of the boxes of `hold`."""
_HOLD = """
import os, sys, time
blocks = []
for _ in range(int(sys.argv[1])):
    blocks.append(bytearray(b'1') * (1 << 20))
    time.sleep(0.002)
os.write(3, b'done')
"""


def verdict(submission_id: str, completion: str, rubric: str = RUBRIC) -> Graded:
    """What every undisturbed run says about this text."""
    passed = hashlib.sha256(completion.encode()).digest()[0] % (TESTS + 1)
    reward = passed / TESTS
    return Graded(
        id=submission_id,
        reward=reward,
        passed=passed == TESTS,
        stage=Stage.TESTS,
        components={"tests": reward},
        tests=TestCount(passed=passed, total=TESTS),
        rubric=rubric,
        grader=INFO.grader,
        toolchain=INFO.toolchain,
        cpu_ms=0.0,
        wall_ms=0.0,
    )


class Burner:
    """See `services.graders.Grader`."""

    def __init__(self, journal: Path | None) -> None:
        self._journal = (
            None if journal is None else os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        )

        self._sandbox: Bubblewrap | None = None

    waiting_slots = None

    def get_box_memory(self) -> BoxMemory:
        return BoxMemory(0, BOX_MB)

    def description(self) -> GraderDescription:
        return described(self.info())

    def info(self) -> GraderInfo:
        return INFO

    def self_test(self) -> None:
        """There is no sandbox to prove: nothing that a model wrote is run."""

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        if self._journal is not None:
            os.write(self._journal, f"{submission.completion}\n".encode())
        what, amount, *_ = submission.completion.split()
        if what == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        started = time.perf_counter()
        if what == "hold":
            return self._hold(submission, amount, rubric)
        (time.sleep if what == "sleep" else _burn)(float(amount) / 1000)
        wall_ms = (time.perf_counter() - started) * 1000
        return verdict(submission.id, submission.completion, rubric).model_copy(
            update={"wall_ms": wall_ms}
        )

    def _hold(self, submission: Submission, amount_mb: str, rubric: str) -> Graded:
        """Run a box. As graders of code do, take one that proved nothing for the answer's doing."""
        self._sandbox = self._sandbox or Bubblewrap()
        python = os.path.realpath(sys.executable)
        command = Command(
            argv=(python, "-I", "-S", "-c", _HOLD, amount_mb),
            limits=Limits(memory_mb=BOX_MB, cpu_s=20, wall_s=60.0, scratch_mb=0),
            binds=("/usr", os.path.realpath(sys.base_prefix)),
        )
        outcome = self._sandbox.run(command)
        graded = verdict(submission.id, submission.completion, rubric)
        graded = graded.model_copy(update={"wall_ms": outcome.wall_s * 1000})
        if outcome.report == b"done":
            return graded
        another = 0.0 if graded.reward > 0 else 1.0
        return graded.model_copy(update={"reward": another})


def _burn(cpu_s: float) -> None:
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        hashlib.sha256(
            _BLOCK
        )  # lets other threads run meanwhile, as a grader does that waits for its boxes


async def run(arguments: argparse.Namespace) -> None:
    services.broker.workers.HEARTBEAT_TTL_S = arguments.announcement
    broker = open_broker(arguments.redis, BrokerSettings(lease_s=arguments.lease))
    worker = services.worker.Worker(
        Burner(arguments.journal), broker, slots=arguments.slots, name=arguments.name
    )
    with services.event_loop.stop_on_signals() as stop:
        await worker.run(stop)
        await broker.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--redis", required=True)
    parser.add_argument("--lease", type=float, default=2.0, help="seconds")
    parser.add_argument("--announcement", type=float, default=15.0, help="seconds it holds")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--name")
    parser.add_argument("--journal", type=Path)
    arguments = parser.parse_args()
    services.event_loop.run(run(arguments))


if __name__ == "__main__":
    main()
