"""The folder of one run: what lies where, where to go on from, and logs without doubled or torn
lines.

Writes no checkpoint itself: transformers does. A killed run may leave one half-written; those are
told apart here.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.folder_lock import locked
from gradus.whole_file import write_text

Log = Callable[[str], None]


class RunFolder:
    """Names of everything in a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.resolved_config = path / "config.resolved.json"
        self.environment = path / "environment.json"
        self.changes = path / "changes.jsonl"
        """What was changed in the settings when the run was resumed."""
        self.log = path / "training.log"
        self.metrics = path / "metrics.jsonl"
        """One line per logged step, and one per evaluation of the loss."""
        self.data = path / "data.json"
        """Which rows or tokens a run without tasks used for what."""
        self.completions = path / "completions.jsonl"
        """One line per sampled completion."""
        self.turns = path / "turns.jsonl"
        """One line per answer of a run with several turns."""
        self.evaluations = path / "eval"
        """Measurements on the held-out tasks, `trainer.evaluate`'s."""
        self.comparison = path / "comparison.json"
        """What changed from the first measurement to the last, for the dashboard."""
        self.sft_metrics = path / "sft_metrics.jsonl"
        self.train_tasks = path / "tasks.train.jsonl"
        self.held_out_tasks = path / "tasks.held_out.jsonl"
        self.fresh_model = path / "model"
        self.warm_start = path / "warm_start"
        self.final = path / "final"
        self.weights = path / "weights"
        """What a generation server fetches during the run; removed afterwards."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of this folder. Raises Misuse if one is in it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(
            self.path / ".lock",
            f"{self.path}: another run is writing here; choose another output_dir",
        ):
            yield

    def set_aside(self) -> Path | None:
        """Move an earlier run into `previous-<n>` beside the new one's files; where to, or None if
        there was none."""
        old = []
        for entry in self.path.iterdir():
            if not entry.name.startswith(("previous-", ".lock")):
                old.append(entry)
        return self._move_aside(old)

    def set_start_aside(self) -> Path | None:
        """Move the models that an earlier attempt began with into `previous-<n>`, which is
        returned; None if there were none."""
        return self._move_aside([entry for entry in self._start if entry.exists()])

    def has_start(self) -> bool:
        """Return whether an earlier attempt left a model to begin with."""
        return any(entry.exists() for entry in self._start)

    @property
    def _start(self) -> tuple[Path, ...]:
        """Models that a run begins with."""
        return (self.fresh_model, self.warm_start, self.path / "warm_start.checkpoints")

    def set_final_aside(self) -> Path | None:
        """Move the model that a run ended with into `previous-<n>`, which is returned; None if
        there was none."""
        return self._move_aside([self.final] if self.final.exists() else [])

    def _move_aside(self, entries: Sequence[Path]) -> Path | None:
        """Move the entries into the next `previous-<n>`, which is returned; None if there are
        none."""
        if not entries:
            return None
        aside = find_free_name(self.path / "previous-")
        aside.mkdir()
        for entry in entries:
            entry.rename(aside / entry.name)
        return aside

    def drop_after(self, step: int) -> Path | None:
        """Drop what was logged and measured of steps that will be done again, and a line torn by a
        crash.

        Logs of a run that begins anew move to `previous-<n>`, which is returned; None: there were
        none.
        """
        logs = []
        for file in (self.metrics, self.completions, self.turns):
            if file.exists() and file.stat().st_size:
                logs.append(file)
        if step == 0 and logs:
            evaluations = self.evaluations
            return self._move_aside(
                [*logs, *evaluations.glob("step-*"), *evaluations.glob("after*")]
            )
        for file in (self.metrics, self.completions, self.turns):
            drop_lines_after(file, step)
        for file in self.evaluations.glob("*.json"):
            measured_at = re.fullmatch(r"step-([0-9]+)", file.stem)
            if file.stem == "after" or (measured_at and int(measured_at[1]) > step):
                file.unlink()
        return None


def find_free_name(stem: Path) -> Path:
    """Return the first of `<stem>1`, `<stem>2` ... that is not there."""
    names = (stem.with_name(f"{stem.name}{number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


@contextmanager
def write_whole(target: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `target` when the block ends without an exception."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    yield partial
    partial.rename(target)


# ---------------------------------------------------------------------- checkpoints


def find_resume_checkpoint(folder: Path, resume: str, log: Log) -> Path | None:
    """Return the checkpoint to go on from: `auto` takes the newest whole one, `never` none, else
    the path that was given.

    Raises Misuse for a given path that is no whole checkpoint.
    """
    if resume == "never":
        return None
    if resume != "auto":
        why = find_defect(Path(resume))
        if why:
            raise Misuse(f"--resume {resume}: {why}")
        return Path(resume)
    for checkpoint in _list_checkpoints(folder):
        why = find_defect(checkpoint)
        if why is None:
            return checkpoint
        log(
            f"skipping {checkpoint.name}: {why}; the run was probably stopped while it was being"
            " written"
        )
    return None


def find_newest_checkpoint(folder: Path, up_to: int) -> Path | None:
    """Return the whole checkpoint with the most steps done, of those with no more than so many."""
    candidates = (entry for entry in _list_checkpoints(folder) if _parse_number(entry) <= up_to)
    return next((entry for entry in candidates if find_defect(entry) is None), None)


def _list_checkpoints(folder: Path) -> list[Path]:
    """Return those in a folder, whole or not, the newest first."""
    entries = []
    for entry in folder.glob("checkpoint-*"):
        if re.fullmatch(r"checkpoint-[0-9]+", entry.name):
            entries.append(entry)
    return sorted((entry for entry in entries if entry.is_dir()), key=_parse_number, reverse=True)


def _parse_number(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def read_step(checkpoint: Path | None) -> int:
    """Steps done when it was written; 0 where there is none."""
    return int(_read_state(checkpoint)["global_step"]) if checkpoint else 0


def read_epochs(checkpoint: Path) -> int:
    """Whole passes over the data done when it was written."""
    return int(_read_state(checkpoint)["epoch"] or 0)


def _read_state(checkpoint: Path) -> Any:
    return json.loads((checkpoint / "trainer_state.json").read_text())


def find_defect(checkpoint: Path) -> str | None:
    """Return what a checkpoint lacks to be trained on from; None if nothing.

    transformers writes trainer_state.json last, when weights and the states of all processes are
    there.
    """
    if not checkpoint.is_dir():
        return "there is no such folder"
    try:
        read_step(checkpoint)
    except (OSError, ValueError, KeyError) as error:
        return f"trainer_state.json is missing or torn ({type(error).__name__})"
    if find_layout(checkpoint) == DEEPSPEED or any(checkpoint.glob("optimizer*")):
        return None
    return "it has no optimizer states"


PLAIN, FSDP, DEEPSPEED = "no sharding", "FSDP", "DeepSpeed"
"""What laid a checkpoint out, by what it shards among processes."""


def find_layout(checkpoint: Path) -> str:
    """Return what laid the checkpoint out: `PLAIN`, `FSDP` or `DEEPSPEED`."""
    if (checkpoint / "latest").exists():
        return DEEPSPEED
    return FSDP if any(checkpoint.glob("pytorch_model_fsdp*")) else PLAIN


# ---------------------------------------------------------------------- JSON lines


def append_lines(file: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Add records to a file of JSON lines in one write, so that a reader or a crash sees whole
    batches mostly."""
    text = "".join(
        json.dumps(replace_nonfinite(record), ensure_ascii=False, allow_nan=False) + "\n"
        for record in records
    )
    # A lone surrogate cannot be encoded; its escape means the same in JSON.
    with file.open("a", encoding="utf-8", errors="backslashreplace") as handle:
        handle.write(text)


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the whole records of a file of JSON lines; a torn last line is left out, a missing
    file is empty."""
    if not file.exists():
        return []
    records = map(parse_record, file.read_text(encoding="utf-8").split("\n"))
    return [record for record in records if record is not None]


def drop_lines_after(file: Path, step: int) -> None:
    """Keep the records with `step` up to the given one, and write the file anew if any other was
    there."""
    if not file.exists():
        return
    lines = []
    for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
        record = parse_record(line)
        if record is not None and record.get("step", 0) <= step:
            lines.append(line + "\n")
    write_text(file, "".join(lines))


def parse_record(line: str) -> dict[str, Any] | None:
    """Return the record on a line; None for a line that a crash tore."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def replace_nonfinite(value: Any) -> Any:
    """Return the value with NaN and infinities as None, which JSON lacks a word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_nonfinite(item) for item in value]
    return value
