"""What a pipeline has done, in its folder: which stage with what, and how it ended. Written at once
or not at all.

pipeline.json    the state, one entry for each stage that was begun
.lock            held by the run, and by what it has started for as long as that lives
logs/NAME.log    what a stage's command said
NAME/            what a stage leaves
earlier/         what was there before a stage ran anew
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gradus.errors import Misuse
from gradus.validation import read_as
from gradus.whole_file import write_text
from trainer.runs.folder import find_free_name

LEFTOVER_S = 60.0
"""How long a run waits for what an earlier one, which is gone, has started: a training that is
being stopped saves."""


class Entry(BaseModel):
    """One stage that was begun."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["running", "done", "failed"]
    """Running: or killed while it was. Failed: or refused, for a gate."""
    fingerprint: str
    """Hash of the stage's settings and of all its inputs."""
    inputs: dict[str, str | None] = {}
    """What it reads, with its hash; None for names on a hub."""


class State(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    schema_: Literal["gradus/pipeline@1"] = Field("gradus/pipeline@1", alias="schema")
    name: str
    stages: dict[str, Entry] = {}


class PipelineFolder:
    """Names of everything in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "pipeline.json"
        self.lock = path / ".lock"
        self.logs = path / "logs"
        self.earlier = path / "earlier"

    def get_stage_folder(self, stage: str) -> Path:
        return self.path / stage

    def log(self, stage: str) -> Path:
        return self.logs / f"{stage}.log"

    def set_aside(self, stage: str) -> Path | None:
        """Move what a stage has left to the next free name in `earlier`; where to, or None if there
        was nothing."""
        folder = self.get_stage_folder(stage)
        if not folder.exists() or not any(folder.iterdir()):
            return None
        self.earlier.mkdir(exist_ok=True)
        return folder.rename(find_free_name(self.earlier / f"{stage}-"))

    def read(self, name: str) -> State:
        """Return the state, an empty one where there is none. Raises Misuse for a damaged one."""
        if not self.state.exists():
            return State(name=name)
        return read_as(State, self.state, "state", ". Remove it to run every stage anew")

    def write(self, state: State) -> None:
        write_json(self.state, state.model_dump(mode="json", by_alias=True))

    @contextmanager
    def acquire_lock(
        self, log: Callable[[str], None], leftover_s: float = LEFTOVER_S
    ) -> Iterator[int]:
        """Keep other runs out; yields the lock's descriptor, for children to hold as well.

        Raises Misuse if another run, or what a killed one has started, does not end in time.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        give_up_at = None
        try:
            while not _is_taken(descriptor):
                if give_up_at is None:
                    log("waiting for another run in this folder, or what one has started, to end")
                    give_up_at = time.monotonic() + leftover_s
                if time.monotonic() > give_up_at:
                    raise Misuse(f"{self.path}: another run, or what one has started, is in there")
                time.sleep(0.2)
            yield descriptor
        finally:
            os.close(descriptor)


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
