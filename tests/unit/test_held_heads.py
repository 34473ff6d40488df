"""Head and body of an answer leave together, and nothing stays behind."""

from __future__ import annotations

import asyncio

import pytest

from services.api.heads import HeldHeads

HEAD = b"HTTP/1.1 200 \r\n\r\n"


class Recorder(asyncio.Transport):
    """Remembers what was written to it, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed_after: int | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed_after = len(self.written)

    def is_closing(self) -> bool:
        return self.closed_after is not None


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def held(recorder: Recorder) -> HeldHeads:
    return HeldHeads(recorder, asyncio.get_running_loop())


async def test_head_and_body_are_one_write(recorder: Recorder, held: HeldHeads) -> None:
    for _ in range(2):
        held.write(HEAD)
        held.write(b"body")
    held.write(b"more")
    await asyncio.sleep(0)
    assert recorder.written == [HEAD + b"body", HEAD + b"body", b"more"]


async def test_a_head_without_a_body_leaves_in_the_next_turn(recorder: Recorder, held: HeldHeads) -> None:
    held.write(HEAD)
    assert recorder.written == []
    await asyncio.sleep(0)
    assert recorder.written == [HEAD]
    held.write(b"the first line of a stream")
    assert recorder.written[1:] == [b"the first line of a stream"]


async def test_a_body_that_looks_like_a_head_is_no_exception(recorder: Recorder, held: HeldHeads) -> None:
    held.write(HEAD)
    held.write(HEAD)
    held.write(HEAD)
    await asyncio.sleep(0)
    assert recorder.written == [HEAD + HEAD, HEAD]


async def test_closing_sends_what_was_held(recorder: Recorder, held: HeldHeads) -> None:
    held.write(HEAD)
    held.close()
    assert (recorder.written, recorder.closed_after) == ([HEAD], 1)
    assert held.is_closing()
