"""The dashboard for tests: a server of its own in a thread, and run folders that grow while it
looks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from services.dashboard.app import serve
from services.event_loop import run


@contextmanager
def quick_looks() -> Iterator[None]:
    """Servers started meanwhile look at runs ten times a second, for new runs five times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.dashboard.runs.LOOK_EVERY_S", 0.1)
        patch.setattr("services.dashboard.runs.SEARCH_EVERY_S", 0.2)
        yield


class LivePage:
    """`gradus dashboard` over a folder, on a free port of this machine."""

    def __init__(self, folder: Path, port: int = 0, **options: Any) -> None:
        self._folder = folder
        self._port = port
        self._options = options
        self._ready = threading.Event()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[LivePage]:
        thread = threading.Thread(target=lambda: run(self._run()))
        thread.start()
        assert self._ready.wait(60)
        try:
            yield self
        finally:
            self.loop.call_soon_threadsafe(self._stopping.set)
            thread.join(60)
            assert not thread.is_alive(), "it does not end"

    def _on_ready(self, url: str) -> None:
        self.url = url
        self._ready.set()

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        serving = serve(
            self._folder,
            port=self._port,
            stop=self._stopping,
            on_ready=self._on_ready,
            **self._options,
        )
        await serving


def append(file: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Add lines to a file, as a run does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as handle:
        handle.write("".join(json.dumps(record) + "\n" for record in records))


def metric(step: int, **values: Any) -> dict[str, Any]:
    """One line of metrics.jsonl."""
    return {"step": step, "time": 100.0 + step, "reward": 0.5, "reward_std": 0.1, **values}


def sample(
    step: int, n: int = 0, prompt_id: str = "t", reward: float | None = 0.5, **values: Any
) -> dict[str, Any]:
    """One line of completions.jsonl; without a reward it is a fault."""
    judged = {"reward": reward, "passed": reward == 1, "stage": "tests", "fault": None}
    if reward is None:
        judged |= {
            "passed": None,
            "stage": None,
            "fault": {"kind": "sandbox", "message": "the box broke"},
        }
    asked = {
        "step": step,
        "prompt_id": prompt_id,
        "sample": n,
        "prompt": f"(* {prompt_id} *)",
        "completion": "let f x = x",
    }
    return {**asked, **judged, **values}
