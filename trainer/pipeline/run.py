"""`gradus pipeline run`: one stage after another, each a command in a process of its own, linear on
purpose.

What is done is not done again; a stage that was stopped resumes if its command can, and one whose
settings or inputs have changed runs anew with all after it. The options are the CLI's.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from gradus.console import log_line
from gradus.errors import Misuse
from trainer.config.run import describe_nearest
from trainer.config.stages import load_stage
from trainer.pipeline.digests import (
    Inputs,
    collect_inputs,
    compute_digest,
    compute_record_digests,
    fingerprint,
)
from trainer.pipeline.plan import EMBEDDED, Pipeline, load_pipeline
from trainer.pipeline.stages import GateStage, TrainStage
from trainer.pipeline.state import Entry, PipelineFolder, write_json
from trainer.pipeline.subprocesses import GRADUS, Child, Embedded, Signals
from trainer.runs.signals import StopRequested

EXIT_DONE, EXIT_REFUSED, EXIT_MISUSE, EXIT_FAULTED, EXIT_FAILED = 0, 1, 2, 3, 4
"""Failed: a stage's program ended in a way that is neither misuse nor a fault. A signal: 128 + its
number."""
TAIL_LINES = 15
LATER = "http://the-service"
"""Stands for the address of a service that is not there yet."""

CheckCommand = Callable[[Sequence[str]], None]
"""Raises Misuse when the command line does not understand these words."""


Todo = Literal["done before", "resumes", "runs"]
"""What is to be done about a stage."""


class StageEnded(Exception):
    """A stage did not succeed, and with it the pipeline ends; the message says what is known."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.exit_status = status


def main(
    path: Path,
    overrides: Sequence[str],
    start: str | None,
    check_command: CheckCommand,
    *,
    dry_run: bool = False,
) -> int:
    """Run the pipeline of a file, or with `dry_run` say what would be done and check every stage's
    settings.

    Returns 0 when every stage is done, 1 when a gate refused, 3 and 4 when a stage failed, 128 + n
    after a signal. Raises Misuse, and Fault when the pipeline's own grading service does not start.
    """
    pipeline = load_pipeline(path, overrides)
    if start is not None and start not in pipeline.stages:
        raise Misuse(
            f"--from {start}: there is no such"
            f" stage{describe_nearest(start, list(pipeline.stages))}"
        )
    folder = PipelineFolder(pipeline.folder)
    signals = Signals(log_line)
    if dry_run:
        Run(pipeline, path, start, signals, folder).describe(check_command)
        return EXIT_DONE
    with folder.acquire_lock(log_line) as lock, signals.handle_signals():
        run = Run(pipeline, path, start, signals, folder)
        try:
            with closing(Embedded(folder.log("service"), lock, pipeline.graders)) as service:
                run.check(overrides, check_command, lock)
                for name, todo, inputs in run.plan_stages():
                    if todo == "done before":
                        log_line(format_stage_line(name, todo))
                    else:
                        run.run_stage(name, todo, inputs, service, lock)
        except StageEnded as ended:
            log_line(f"{pipeline.name}: {ended}")
            return ended.exit_status
        except StopRequested as stopped:
            log_line(f"{pipeline.name}: {stopped}. The same command resumes from here.")
            return stopped.exit_status
    stages = len(pipeline.stages)
    log_line(f"{pipeline.name}: all {stages} stages are done; everything is in {pipeline.folder}")
    return EXIT_DONE


@dataclass
class Run:
    """One run of a pipeline, with all that its steps share."""

    pipeline: Pipeline
    source: Path
    """The pipeline's file."""
    start: str | None
    """The stage that runs anew, with all after it."""
    signals: Signals
    folder: PipelineFolder

    def __post_init__(self) -> None:
        self.ready = self.pipeline.ready()
        self.state = self.folder.read(self.pipeline.name)

    def plan_stages(self) -> Iterator[tuple[str, Todo, Inputs]]:
        """Yield each stage and what is to be done, when it is asked for: what earlier stages have
        left counts."""
        anew = False
        for name, stage in self.ready.items():
            self.signals.raise_if_made()
            raw_stage = self.pipeline.stages[name]
            entry = self.state.stages.get(name)
            inputs = collect_inputs(raw_stage, stage, self.pipeline.map_outputs())
            anew = anew or name == self.start
            todo: Todo = "runs"
            if (
                not anew
                and entry is not None
                and entry.fingerprint == fingerprint(raw_stage, inputs)
            ):
                if entry.status == "done" and not self.find_missing(name):
                    todo = "done before"
                elif entry.status != "done" and stage.GOES_ON:
                    todo = "resumes"
            anew = anew or todo != "done before"
            yield name, todo, inputs

    def find_missing(self, name: str) -> list[str]:
        """Return what a stage should have left and has not."""
        stage = self.ready[name]
        outputs = stage.list_outputs(self.folder.get_stage_folder(name))
        missing = []
        for output, path in outputs.items():
            if output not in stage.OPTIONAL and not path.exists():
                missing.append(output)
        return missing

    def build_words(self, name: str, embedded: Callable[[], str]) -> list[str]:
        """Return the whole command of a stage; `embedded` tells the address of the pipeline's own
        service."""
        stage = self.ready[name]
        url = self.pipeline.service if stage.wants_service else None
        if url == EMBEDDED:
            url = embedded()
        return stage.build_command(self.folder.get_stage_folder(name), url)

    # ----------------------------------------------------------------------------------- one stage

    def run_stage(
        self, name: str, todo: Todo, inputs: Inputs, service: Embedded, lock: int
    ) -> None:
        """Run a stage, and keep what came of it. Raises StageEnded unless it is done, StopRequested
        after a signal."""
        stage = self.ready[name]
        folder = self.folder.get_stage_folder(name)
        log = self.folder.log(name)
        if todo == "runs":
            self.folder.set_aside(name)
        folder.mkdir(parents=True, exist_ok=True)
        entry = self._add_entry(name, inputs)
        if isinstance(stage, GateStage):
            gates = stage.model_dump(mode="json", exclude={"kind"})
            request = {
                "name": f"{self.pipeline.name}/{name}",
                **gates,
                "lineage": self._collect_lineage(),
            }
            write_json(stage.get_gates_path(folder), request)
        command = self.build_words(name, lambda: service.get_url(self.signals, log_line))
        log_line(format_stage_line(name, f"{stage.kind} {todo}"))
        started = time.monotonic()
        try:
            child = Child([*GRADUS, *command[1:]] if command[0] == "gradus" else command, log, lock)
        except OSError as error:
            raise Misuse(
                f"stages.{name}: {command[0]}: cannot be started: {error.strerror}"
            ) from None
        status = child.wait(self.signals)  # a stage that a signal stops stays as one that runs
        missing = self.find_missing(name)
        entry.status = "done" if status == 0 and not missing else "failed"
        self.folder.write(self.state)
        log_line(format_stage_line("", str(timedelta(seconds=round(time.monotonic() - started)))))
        if isinstance(stage, GateStage):
            log_line(child.read_output().rstrip())
            if status == EXIT_REFUSED:
                raise StageEnded(f"{name} refused; what was measured is in {folder}", EXIT_REFUSED)
        if status != 0:
            exit_status = status if status in (EXIT_MISUSE, EXIT_FAULTED) else EXIT_FAILED
            raise StageEnded(
                f"{name} ended with status {status}; the end of {log}:\n{child.tail(TAIL_LINES)}",
                exit_status,
            )
        if missing:
            left_out = ", ".join(missing)
            raise StageEnded(f"{name} ended without leaving its {left_out}; see {log}", EXIT_FAILED)

    def _add_entry(self, name: str, inputs: Inputs) -> Entry:
        """Return the stage's entry; whatever comes after it is forgotten, and so runs anew."""
        names = list(self.ready)
        earlier = names[: names.index(name)]
        entry = Entry(
            status="running",
            fingerprint=fingerprint(self.pipeline.stages[name], inputs),
            inputs=inputs,
        )
        earlier_entries = {}
        for stage_name, stage_entry in self.state.stages.items():
            if stage_name in earlier:
                earlier_entries[stage_name] = stage_entry
        self.state.stages = {**earlier_entries, name: entry}
        self.folder.write(self.state)
        return entry

    def _collect_lineage(self) -> dict[str, Any]:
        """Return how a model came about, for the record of its promotion."""
        stages = {}
        for name, entry in self.state.stages.items():
            if entry.status == "done":
                stages[name] = {
                    "settings": self.pipeline.stages[name].model_dump(mode="json"),
                    "inputs": entry.inputs,
                }
                if isinstance(self.ready[name], TrainStage):
                    stages[name]["left"] = compute_record_digests(
                        self.folder.get_stage_folder(name)
                    )
        return {
            "pipeline": self.pipeline.name,
            "file_sha256": compute_digest(self.source),
            "stages": stages,
        }

    # ------------------------------------------------------------------------------------ checking

    def check(self, overrides: Sequence[str], check_command: CheckCommand, lock: int) -> None:
        """Look at every stage's settings before the first one runs, those of trainings in a process
        that may load TRL.

        Raises Misuse, or StageEnded with what that process said.
        """
        if not any(isinstance(stage, TrainStage) for stage in self.ready.values()):
            self._refuse_mistakes(check_command)
            return
        command = [
            *GRADUS,
            "pipeline",
            "run",
            str(self.source),
            "--dry-run",
            *(f"--set={text}" for text in overrides),
        ]
        log_line(format_stage_line("check", "all settings"))
        child = Child(command, self.folder.log("check"), lock)
        status = child.wait(self.signals)
        if status != 0:
            output = child.read_output()
            mistakes = output[max(0, output.find("gradus: ")) :].rstrip()
            raise StageEnded(mistakes, EXIT_MISUSE if status == EXIT_MISUSE else EXIT_FAILED)

    def describe(self, check_command: CheckCommand) -> None:
        """Say what each stage would do. Raises Misuse with every mistake before it says
        anything."""
        self._refuse_mistakes(check_command)
        for name, todo, _ in self.plan_stages():
            log_line(format_stage_line(name, todo))
            log_line(f"    {shlex.join(self.build_words(name, lambda: LATER))}")

    def _refuse_mistakes(self, check_command: CheckCommand) -> None:
        mistakes = []
        for name, stage in self.ready.items():
            try:
                words = self.build_words(name, lambda: LATER)
                if words[0] == "gradus":
                    check_command(words[1:])
                if isinstance(stage, TrainStage):
                    load_stage(
                        Path(stage.config),
                        stage.build_overrides(self.folder.get_stage_folder(name), None),
                    )
            except Misuse as misuse:
                mistakes += [f"stages.{name}: {line}" for line in str(misuse).splitlines()]
        if mistakes:
            raise Misuse("\n".join(mistakes))


def format_stage_line(name: str, text: str) -> str:
    return f"  {name:<14} {text}"
