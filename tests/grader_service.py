"""A service with a real grader, for tests of what stands before it: the API and one worker in a
thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

from services.api.server import serve
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from services.event_loop import run
from services.graders.base import Grader
from services.worker import Worker

START_TIMEOUT_S = 100


@contextmanager
def serve_grader(grader: Grader, **settings: Any) -> Iterator[str]:
    """The URL of an API with these settings and a worker of the grader, which proved itself."""
    started: Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Queue()

    async def serve_here() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        broker = MemoryBroker()
        worker = Worker(grader, broker, slots=2, self_tested=True)
        serving = serve(
            broker,
            "127.0.0.1",
            0,
            settings=ApiSettings(**settings),
            stop=stop,
            on_ready=lambda url: started.put((url, loop, stop)),
        )
        await asyncio.gather(worker.run(stop), serving)

    thread = threading.Thread(target=lambda: run(serve_here()))
    thread.start()
    url, loop, stop = started.get(timeout=START_TIMEOUT_S)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
