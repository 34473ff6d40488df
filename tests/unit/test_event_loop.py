"""The event loop of services: signals stop a service, and are handled as before once it has
ended."""

from __future__ import annotations

import asyncio
import signal

from services.event_loop import run, stop_on_signals


def test_a_service_that_was_stopped_leaves_no_handlers_of_signals() -> None:
    async def stopped() -> bool:
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(stop.wait(), 10)
            return stop.is_set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    # a shell ignores SIGINT in what it starts in the background, which asyncio does not restore
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        before = [signal.getsignal(number) for number in numbers]
        assert run(stopped())
        assert [signal.getsignal(number) for number in numbers] == before
    finally:
        signal.signal(signal.SIGINT, inherited)
