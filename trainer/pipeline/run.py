"""`gradus pipeline run`: one stage after another, each a command in a process of its own, linear on purpose.

What is done is not done again; a stage that was stopped goes on if its command can, and one whose settings or inputs
have changed runs anew with all after it. The options are the CLI's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from trainer.config import nearest
from trainer.pipeline.child import Child, Signals, Stopped
from trainer.pipeline.digests import Digests
from trainer.pipeline.fingerprint import Inputs, fingerprint, fingerprint_of_all, inputs_of
from trainer.pipeline.paths import mistakes_in
from trainer.pipeline.plan import EMBEDDED, Pipeline, load_pipeline, wants_service
from trainer.pipeline.screen import Screen
from trainer.pipeline.service import GRADUS, Embedded
from trainer.pipeline.stages import CommandStage, GateStage, Stage, TrainStage
from trainer.pipeline.state import Entry, PipelineFolder, State, Status, write_json

EXIT_DONE, EXIT_REFUSED, EXIT_MISUSE, EXIT_FAULTED, EXIT_FAILED = 0, 1, 2, 3, 4
"""Failed: a stage's program ended in a way that is neither misuse nor a fault. A signal: 128 + its number."""
TAIL_LINES = 15
LATER = "http://the-service"
"""Stands for the address of a service that is not there yet."""
LEFT_BY_TRAINING = (
    "config.resolved.json",
    "environment.json",
    "data.json",
    "tasks.train.jsonl",
    "tasks.held_out.jsonl",
)

CheckCommand = Callable[[Sequence[str]], None]
"""Raises Misuse when the command line does not understand these words."""


class Todo(StrEnum):
    """What is to be done about a stage."""

    NOTHING = "done before"
    GO_ON = "goes on"
    RUN = "runs"


class StageEnded(Exception):
    """A stage did not succeed, and with it the pipeline ends; the message says what is known."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.exit_status = status


@dataclass(slots=True)
class Run:
    """One run of a pipeline, with all that its steps share."""

    pipeline: Pipeline
    source: Path
    start: str | None
    """The stage that runs anew, with all after it."""
    screen: Screen
    signals: Signals
    folder: PipelineFolder
    state: State
    digests: Digests
    ready: dict[str, Stage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ready = self.pipeline.ready()

    def inputs(self, name: str) -> Inputs:
        return inputs_of(self.pipeline.stages[name], self.ready[name], self.pipeline.places(), self.digests)

    def save(self) -> None:
        self.state.digests = self.digests.seen
        self.folder.write(self.state)


def main(
    path: Path, overrides: Sequence[str], start: str | None, check_command: CheckCommand, *, dry_run: bool = False
) -> int:
    """Run the pipeline of a file, or with `dry_run` say what would be done and check every stage's settings.

    Returns 0 when every stage is done, 1 when a gate refused, 3 and 4 when a stage failed, 128 + n after a signal.
    Raises Misuse, and Fault when the pipeline's own grading service does not start.
    """
    pipeline = load_pipeline(path, overrides)
    if start is not None and start not in pipeline.stages:
        raise Misuse(f"--from {start}: there is no such stage{nearest(start, list(pipeline.stages))}")
    screen, folder = Screen(pipeline.name, len(pipeline.stages)), PipelineFolder(pipeline.folder)
    signals = Signals(screen.say)
    if dry_run:
        return _told(_run_of(pipeline, path, start, screen, signals, folder), check_command)
    with signals.heard(), folder.locked(screen.say) as lock:
        run = _run_of(pipeline, path, start, screen, signals, folder)
        try:
            with Embedded(folder.log("service"), lock, [g for g in pipeline.graders], pipeline.slots) as service:
                _checked(run, overrides, check_command, lock)
                _run_all(run, service, lock)
        except StageEnded as ended:
            screen.say(str(ended))
            return ended.exit_status
        except Stopped as stopped:
            screen.say(f"{stopped}. The same command goes on from here.")
            return stopped.exit_status
    screen.say(f"all {len(pipeline.stages)} stages are done; everything is in {pipeline.folder}")
    return EXIT_DONE


def _run_of(
    pipeline: Pipeline, path: Path, start: str | None, screen: Screen, signals: Signals, folder: PipelineFolder
) -> Run:
    state = folder.read(pipeline.name)
    return Run(pipeline, path, start, screen, signals, folder, state, Digests(state.digests))


# ------------------------------------------------------------------------------------------------------ what is to do


def _todo(run: Run) -> Iterator[tuple[str, Todo, Inputs]]:
    """Each stage and what is to be done, when it is asked for: what earlier stages have left counts."""
    anew = False
    for name, stage in run.ready.items():
        run.signals.raise_if_any()
        inputs = run.inputs(name)
        entry = run.state.stages.get(name)
        same = entry is not None and entry.fingerprint == fingerprint(run.pipeline.stages[name], inputs)
        anew = anew or name == run.start
        todo = Todo.RUN
        if not anew and same and entry is not None:
            if entry.status is Status.DONE and not _missing(run, name):
                todo = Todo.NOTHING
            elif entry.status in (Status.RUNNING, Status.FAILED) and stage.GOES_ON:
                todo = Todo.GO_ON
        anew = anew or todo is not Todo.NOTHING
        yield name, todo, inputs


def _missing(run: Run, name: str) -> list[str]:
    """What a stage should have left and has not."""
    stage = run.ready[name]
    left = stage.outputs(run.folder.of(name))
    return [output for output, path in left.items() if output not in stage.OPTIONAL and not path.exists()]


# --------------------------------------------------------------------------------------------------------------- doing


def _run_all(run: Run, service: Embedded, lock: int) -> None:
    for name, todo, inputs in _todo(run):
        if todo is Todo.NOTHING:
            run.screen.skipped(name)
        else:
            _run_stage(run, name, todo, inputs, service, lock)


def _run_stage(run: Run, name: str, todo: Todo, inputs: Inputs, service: Embedded, lock: int) -> None:
    stage, folder = run.ready[name], run.folder.of(name)
    if todo is Todo.RUN:
        run.folder.set_aside(name)
    folder.mkdir(parents=True, exist_ok=True)
    entry = _begun(run, name, todo, inputs)
    if isinstance(stage, GateStage):
        write_json(stage.wish(folder), _gates(run, name, stage))
    url = _service_url(run, stage, service)
    command = words_of(stage, folder, url)
    began = time.monotonic()
    status: int | None = None
    try:
        with run.screen.stage(name, stage.kind_name, goes_on=todo is Todo.GO_ON) as on_line:
            child = _child(name, command, run.folder.log(name), lock)
            status = child.wait(run.signals, on_line)
    finally:
        _end_entry(run, name, entry, status, time.monotonic() - began)
    _conclude(run, name, child, status)


def _child(name: str, command: Sequence[str], log: Path, lock: int) -> Child:
    try:
        return Child(command, log, lock)
    except OSError as error:
        raise Misuse(f"stages.{name}: {command[0]}: cannot be started: {error.strerror}") from None


def words_of(stage: Stage, folder: Path, url: str | None) -> list[str]:
    """The whole command of a stage."""
    words = stage.command(folder, url)
    if not isinstance(stage, CommandStage):
        return [*GRADUS, *words]
    return [*GRADUS, *words[1:]] if words[0] == "gradus" else words


def _service_url(run: Run, stage: Stage, service: Embedded) -> str | None:
    if run.pipeline.service is None or not wants_service(stage):
        return None
    if run.pipeline.service != EMBEDDED:
        return run.pipeline.service
    return service.url(run.signals, run.screen.note)


def _begun(run: Run, name: str, todo: Todo, inputs: Inputs) -> Entry:
    """The stage's entry; whatever comes after it is forgotten, and so runs anew."""
    before = run.state.stages.get(name) if todo is Todo.GO_ON else None
    names = list(run.ready)
    later = names[names.index(name) + 1 :]
    run.state.stages = {one: entry for one, entry in run.state.stages.items() if one not in later and one in names}
    entry = Entry(
        status=Status.RUNNING,
        fingerprint=fingerprint(run.pipeline.stages[name], inputs),
        inputs=inputs,
        began=before.began if before else _now(),
        took_s=before.took_s if before else 0.0,
        attempts=before.attempts + 1 if before else 1,
    )
    run.state.stages[name] = entry
    run.save()
    return entry


def _end_entry(run: Run, name: str, entry: Entry, status: int | None, took_s: float) -> None:
    """A stage that a signal stopped stays as one that was running."""
    entry.took_s = round(entry.took_s + took_s, 3)
    if status is not None:
        refused = isinstance(run.ready[name], GateStage) and status == EXIT_REFUSED
        done = status == 0 and not _missing(run, name)
        entry.status = Status.DONE if done else Status.REFUSED if refused else Status.FAILED
        entry.exit_status, entry.ended = status, _now()
    run.save()


def _conclude(run: Run, name: str, child: Child, status: int) -> None:
    """Show what a gate decided. Raises StageEnded unless the stage is done."""
    log = run.folder.log(name)
    if isinstance(run.ready[name], GateStage):
        run.screen.show(child.said())
    if run.state.stages[name].status is Status.DONE:
        return
    if run.state.stages[name].status is Status.REFUSED:
        raise StageEnded(f"{name} refused; what was measured is in {run.folder.of(name)}", EXIT_REFUSED)
    if status == 0:
        raise StageEnded(f"{name} ended without leaving its {', '.join(_missing(run, name))}; see {log}", EXIT_FAILED)
    tail = "\n".join(f"  {line}" for line in child.said().splitlines()[-TAIL_LINES:])
    known = status if status in (EXIT_MISUSE, EXIT_FAULTED) else EXIT_FAILED
    raise StageEnded(f"{name} ended with status {status}; the end of {log}:\n{tail}", known)


def _gates(run: Run, name: str, stage: GateStage) -> dict[str, Any]:
    """What `gradus gate` reads: the gates, and how the model came about."""
    asked = stage.model_dump(mode="json", exclude={"kind"})
    return {"name": f"{run.pipeline.name}/{name}", **asked, "lineage": _lineage(run)}


def _lineage(run: Run) -> dict[str, Any]:
    stages = {}
    for name, entry in run.state.stages.items():
        if entry.status is Status.DONE:
            stages[name] = {"settings": run.pipeline.stages[name].model_dump(mode="json"), "inputs": entry.inputs}
            if isinstance(run.ready[name], TrainStage):
                files = {file: run.digests.named(str(run.folder.of(name) / file)) for file in LEFT_BY_TRAINING}
                stages[name]["left"] = {file: digest for file, digest in files.items() if digest is not None}
    return {"pipeline": run.pipeline.name, "file_sha256": run.digests.of(run.source), "stages": stages}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# ------------------------------------------------------------------------------------------------------------ checking


def _checked(run: Run, overrides: Sequence[str], check_command: CheckCommand, lock: int) -> None:
    """Look at every stage's settings before the first one runs, those of trainings in a process that may load TRL.

    Raises Misuse, or StageEnded with what that process said.
    """
    if not any(isinstance(stage, TrainStage) for stage in run.ready.values()):
        _refuse([mistake for name in run.ready for mistake in _mistakes(run, name, check_command)])
        return
    asked = fingerprint_of_all(run.pipeline.stages, {name: {} for name in run.ready})
    configs = {name: run.digests.of(Path(s.config)) for name, s in run.ready.items() if isinstance(s, TrainStage)}
    asked = json.dumps([asked, configs], sort_keys=True)
    if run.state.checked == asked:
        return
    command = [*GRADUS, "pipeline", "run", str(run.source), "--dry-run", *(f"--set={text}" for text in overrides)]
    with run.screen.stage("check", "all settings") as on_line:
        child = Child(command, run.folder.log("check"), lock)
        status = child.wait(run.signals, on_line)
    if status != 0:
        said = child.said()
        mistakes = said[max(0, said.find("gradus: ")) :].rstrip()
        raise StageEnded(mistakes, EXIT_MISUSE if status == EXIT_MISUSE else EXIT_FAILED)
    run.state.checked = asked
    run.save()


def _told(run: Run, check_command: CheckCommand) -> int:
    """Say what each stage would do; every mistake is named before the first is raised as Misuse."""
    mistakes = []
    for name, todo, _ in _todo(run):
        words = _planned(run, name)
        shown = ["gradus", *words[len(GRADUS) :]] if _is_ours(words) else words
        run.screen.planned(name, todo.value, shown)
        mistakes += _mistakes(run, name, check_command)
    _refuse(mistakes)
    return EXIT_DONE


def _is_ours(words: Sequence[str]) -> bool:
    return tuple(words[: len(GRADUS)]) == GRADUS


def _planned(run: Run, name: str) -> list[str]:
    stage = run.ready[name]
    url = run.pipeline.service if wants_service(stage) else None
    return words_of(stage, run.folder.of(name), LATER if url == EMBEDDED else url)


def _mistakes(run: Run, name: str, check_command: CheckCommand) -> list[str]:
    stage = run.pipeline.stages[name]
    if isinstance(stage, GateStage):
        return [f"stages.{name}: {line}" for line in mistakes_in(stage, run.pipeline.stages)]
    try:
        _check(run.ready[name], run.folder.of(name), _planned(run, name), check_command)
    except Misuse as misuse:
        return [f"stages.{name}: {line}" for line in str(misuse).splitlines()]
    return []


def _refuse(mistakes: Sequence[str]) -> None:
    if mistakes:
        raise Misuse("\n".join(mistakes))


def _check(stage: Stage, folder: Path, words: Sequence[str], check_command: CheckCommand) -> None:
    if _is_ours(words):
        check_command(words[len(GRADUS) :])
    if isinstance(stage, TrainStage):
        from trainer.stages.settings import load_stage

        load_stage(Path(stage.config), stage.overrides(folder, None))
