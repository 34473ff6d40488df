"""Large bodies are read in a process of their own, which a body can end without harm to others."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest

from gradus.errors import QueueFault, TooLarge
from services.api.body_process import CPU_S, run_in_process
from services.api.problems import Refused
from tests.body_work import end_once, refuse, write_line

KEY = "a key"


async def test_work_is_done_in_another_process_which_goes_on() -> None:
    first = await run_in_process(KEY, 0, os.getpid)
    assert first != os.getpid()
    assert await run_in_process(KEY, 0, os.getpid) == first


@pytest.mark.parametrize("number", [signal.SIGXCPU, signal.SIGABRT])
async def test_a_body_that_ends_the_process_is_a_413_and_the_next_gets_another(
    number: signal.Signals,
) -> None:
    with pytest.raises(TooLarge, match="send it in parts"):
        await run_in_process(KEY, 0, signal.raise_signal, number)
    assert await run_in_process(KEY, 0, len, "abc") == 3


async def test_a_process_that_somebody_else_ends_twice_is_a_fault_to_retry() -> None:
    with pytest.raises(QueueFault, match="try again") as fault:
        await run_in_process(KEY, 0, signal.raise_signal, signal.SIGKILL)
    assert fault.value.retryable
    assert await run_in_process(KEY, 0, len, "abc") == 3


async def test_work_on_a_body_is_begun_again_where_something_else_ended_the_process(
    tmp_path: Path,
) -> None:
    assert await run_in_process(KEY, 0, end_once, tmp_path / "flag") == "the second time"


async def test_memory_is_bounded_by_the_size_of_the_body() -> None:
    with pytest.raises(TooLarge, match="too much memory"):
        await run_in_process(KEY, 0, bytes, 1_000_000_000)
    assert len(await run_in_process(KEY, 100_000_000, bytes, 1_000_000)) == 1_000_000


async def test_cpu_time_is_bounded() -> None:
    soft, _ = await run_in_process(KEY, 0, resource.getrlimit, resource.RLIMIT_CPU)
    usage = await run_in_process(KEY, 0, resource.getrusage, resource.RUSAGE_SELF)
    assert 0 < soft <= usage.ru_utime + usage.ru_stime + CPU_S


async def test_refusals_are_what_they_were_and_defects_say_where_they_are() -> None:
    with pytest.raises(Refused) as refused:
        await run_in_process(KEY, 0, refuse)
    assert (refused.value.answer_status, str(refused.value)) == (429, "later")
    assert refused.value.headers == {"retry-after": "3"}
    assert refused.value.bound == "bytes"
    assert refused.value.errors == [{"field": "a", "message": "b"}]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        await run_in_process(KEY, 0, divmod, 1, 0)
    with pytest.raises(RuntimeError, match="coroutine"):
        _ = await run_in_process(KEY, 0, asyncio.sleep, 1)


async def test_a_key_with_many_bodies_lets_another_come_after_one(tmp_path: Path) -> None:
    file = tmp_path / "order"
    work = [run_in_process("many", 0, write_line, file, "many") for _ in range(5)]
    work.append(run_in_process("one", 0, write_line, file, "one"))
    await asyncio.gather(*work)
    assert file.read_text().split().index("one") == 1
