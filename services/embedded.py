"""The whole service in one process: queue in memory, API, and one worker per grader. For one
machine, without Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from services.api.server import serve
from services.api.settings import ApiSettings
from services.broker import BrokerSettings
from services.broker.memory import MemoryBroker
from services.event_loop import stop_on_signals
from services.graders.base import Grader, get_default_slots, set_memory_aside
from services.tracing import spans
from services.worker import Worker


async def serve_embedded(
    graders: Sequence[Grader],
    host: str,
    port: int,
    settings: ApiSettings,
    broker_settings: BrokerSettings,
    *,
    slots: int | None,
    on_test: Callable[[str], None],
    on_ready: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT, with `slots` for each grader, by default its usual ones.

    `on_test` gets the name of each grader before it proves itself, which can take seconds.

    Raises the Fault of a grader that cannot prove itself, before listening; an ExceptionGroup when
    a worker fails unexpectedly.
    """
    numbers = []
    for grader in graders:
        number = slots or get_default_slots(grader)
        set_memory_aside(grader, number)
        on_test(grader.description().name)
        await asyncio.to_thread(grader.self_test)
        numbers.append(number)
    with stop_on_signals() as stop:
        broker = MemoryBroker(broker_settings)
        traced = spans("gradus-worker")
        workers = [
            Worker(
                grader,
                broker,
                slots=number,
                self_tested=True,
                spans=traced,
            )
            for grader, number in zip(graders, numbers, strict=True)
        ]
        working = [asyncio.create_task(worker.run(stop)) for worker in workers]
        for task in working:
            task.add_done_callback(lambda _: stop.set())  # a worker that failed ends the service
        try:
            await serve(broker, host, port, settings=settings, stop=stop, on_ready=on_ready)
        finally:
            stop.set()
            ended = await asyncio.gather(*working, return_exceptions=True)
            await broker.close()
            if traced:
                await asyncio.to_thread(traced.close)
        for error in ended:
            if error is not None:
                raise error
