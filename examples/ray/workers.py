"""Workers of Gradus as Ray actors. Each holds its cores and takes jobs from the Redis of all other
workers; Ray starts it again, on another node if need be, when its process or node is lost."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path
from threading import Event

import ray


@ray.remote(max_restarts=-1, max_task_retries=-1)
class GraderActor:
    """One worker. `redis` and `secrets` may name files, which every node then has."""

    def __init__(self, grader: str, redis: str, slots: int, secrets: Path | None) -> None:
        self.grader = grader
        self.redis = redis
        self.slots = slots
        self.secrets = secrets
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Serve until `stop`. Raises Fault when container or sandbox do not hold."""
        from services.broker.from_url import open_broker
        from services.broker.signing import read_secrets
        from services.broker.workers import wait_for_queue
        from services.graders.base import load
        from services.worker import Worker

        secrets = read_secrets(self.secrets)
        secret = secrets[self.grader] if secrets else None
        broker = open_broker(self.redis)
        try:
            grader = await asyncio.to_thread(load, self.grader)
            if await wait_for_queue(broker, self.grader, self.stopping):
                worker = Worker(grader, broker, slots=self.slots, secret=secret)
                await worker.run(self.stopping)
        finally:
            await broker.close()

    async def stop(self) -> None:
        """Take no more jobs; `run` returns when those in progress are finished or given back."""
        self.stopping.set()


def main() -> None:
    parser = argparse.ArgumentParser(description="Run Gradus workers on Ray until SIGTERM.")
    parser.add_argument("grader")
    parser.add_argument("--redis", required=True, help="URL of the queue, or file:PATH")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--slots", type=int, default=1, help="cores of a worker")
    parser.add_argument("--secrets-file", type=Path)
    options = parser.parse_args()

    ray.init()  # the cluster of RAY_ADDRESS, or one on this machine
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    # Ray would let a grader's libraries start as many threads as it has cores, in each slot
    environment = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    placed = GraderActor.options(
        num_cpus=options.slots, scheduling_strategy="SPREAD", runtime_env=environment
    )
    values = (options.grader, options.redis, options.slots, options.secrets_file)
    actors = [placed.remote(*values) for _ in range(options.workers)]
    running = [actor.run.remote() for actor in actors]
    while not stopping.wait(1):
        failed, _ = ray.wait(running, timeout=0)
        ray.get(failed)  # raises what ended a worker
    ray.get([actor.stop.remote() for actor in actors])
    ray.get(running)


if __name__ == "__main__":
    main()
