"""The kinds of stage: what each is told, what it leaves, and which command does it. Starts nothing and reads no file.

In texts of a stage `{name.output}` stands for what an earlier stage left.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from trainer.config import Section
from trainer.pipeline.gates import Gate, Level, refuse_twins

REFERENCE = re.compile(r"\{([a-z0-9_-]+)\.([a-z0-9_]+)\}")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}")
Scalar = bool | int | float | str | None
Options = dict[str, Scalar | list[Scalar]]
"""Options of a command by their names, such as `samples`."""


class Stage(Section):
    """What all kinds have in common."""

    GOES_ON: ClassVar[bool] = False
    """The command goes on where it was stopped, when it is given again."""
    FILES: ClassVar[tuple[str, ...]] = ()
    """Fields that name a file or folder which is read."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """What it may leave out."""
    TAKEN: ClassVar[tuple[str, ...]] = ()
    """Options of its command that the pipeline sets."""

    @model_validator(mode="after")
    def _leaves_what_is_the_pipelines(self) -> Self:
        for name in getattr(self, "options", ()):
            if name.replace("_", "-") in self.TAKEN:
                raise ValueError(f"options.{name}: is the pipeline's to say")
        return self

    def outputs(self, folder: Path) -> dict[str, Path]:
        """What it leaves, by the names that later stages use; all of it must be there for the stage to be done."""
        raise NotImplementedError

    def command(self, folder: Path, service: str | None) -> list[str]:
        """The command's words, without the program's; `service` is where grading is done, None: there."""
        raise NotImplementedError

    @property
    def wants_service(self) -> bool:
        """It has answers graded, by the pipeline's service if there is one."""
        return False

    @property
    def kind_name(self) -> str:
        return str(getattr(self, "kind", ""))


class TrainStage(Stage):
    """`gradus train CONFIG`, whatever the config trains."""

    GOES_ON: ClassVar[bool] = True
    FILES: ClassVar[tuple[str, ...]] = ("config",)
    OPTIONAL: ClassVar[tuple[str, ...]] = ("metrics",)

    kind: Literal["train"]
    config: str
    """A file as in configs/train."""
    set: dict[str, Any] = {}
    """Settings of that file to change, by the names that the command line has for them."""

    @field_validator("set")
    @classmethod
    def _leaves_the_folder_alone(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted({"output_dir", "reward.urls"} & set(value)):
            raise ValueError(f"{taken[0]} is the pipeline's to say")
        return value

    def outputs(self, folder: Path) -> dict[str, Path]:
        return {"run": folder, "model": folder / "final", "metrics": folder / "metrics.jsonl"}

    def command(self, folder: Path, service: str | None) -> list[str]:
        return ["train", self.config, *self.overrides(folder, service)]

    def overrides(self, folder: Path, service: str | None) -> list[str]:
        """The options that change the config."""
        given = {**self.set, "output_dir": str(folder)}
        if service is not None:
            given["reward.urls"] = service
        # JSON is YAML, and what is a text in the one is never a number in the other.
        return [f"--{name}={json.dumps(value)}" for name, value in given.items()]


class EvalStage(Stage):
    """`gradus eval MODEL TASKS`; or, without a grader, `gradus eval-perplexity`, `eval-tools` or `eval-refusals`."""

    GOES_ON: ClassVar[bool] = True
    FILES: ClassVar[tuple[str, ...]] = ("model", "tasks", "perplexity", "calls", "declines")
    TAKEN: ClassVar[tuple[str, ...]] = ("out", "url", "model", "grader", "fresh")

    kind: Literal["eval"]
    model: str
    tasks: str | None = None
    perplexity: str | None = None
    calls: str | None = None
    """Trajectories, whose turns the model is asked for."""
    declines: str | None = None
    """Asks of which some cannot be done."""
    grader: str = "ocaml"
    options: Options = {}
    """Further options of the command by their names, such as `samples` or `max_new_tokens`."""

    @model_validator(mode="after")
    def _measures_one_thing(self) -> EvalStage:
        if sum(given is not None for given in (self.tasks, *self._ungraded().values())) != 1:
            raise ValueError("give one of tasks, perplexity, calls and declines")
        return self

    def _ungraded(self) -> dict[str, str | None]:
        """The data of each measurement without a grader."""
        return {"perplexity": self.perplexity, "calls": self.calls, "declines": self.declines}

    @property
    def wants_service(self) -> bool:
        return self.tasks is not None

    def outputs(self, folder: Path) -> dict[str, Path]:
        for name, data in self._ungraded().items():
            if data is not None:
                return {"results": folder / f"{name}.json"}
        return {
            "folder": folder,
            "results": folder / "results.json",
            "completions": folder / "completions.jsonl",
            "report": folder / "report.html",
        }

    def command(self, folder: Path, service: str | None) -> list[str]:
        to = ["--out", str(folder), *_as_options(self.options)]
        commands = {"perplexity": "eval-perplexity", "calls": "eval-tools", "declines": "eval-refusals"}
        for name, data in self._ungraded().items():
            if data is not None:
                return [commands[name], self.model, data, *to]
        assert self.tasks is not None
        graded = ["--url", service] if service is not None else []
        return ["eval", self.model, self.tasks, "--grader", self.grader, *graded, *to]


class SampleStage(Stage):
    """`gradus sample MODEL PROMPTS`: completions that nobody grades."""

    GOES_ON: ClassVar[bool] = True
    FILES: ClassVar[tuple[str, ...]] = ("model", "prompts")
    TAKEN: ClassVar[tuple[str, ...]] = ("out", "model", "fresh")

    kind: Literal["sample"]
    model: str
    prompts: str
    options: Options = {}

    def outputs(self, folder: Path) -> dict[str, Path]:
        return {"completions": folder / "completions.jsonl"}

    def command(self, folder: Path, service: str | None) -> list[str]:
        out = str(self.outputs(folder)["completions"])
        return ["sample", self.model, self.prompts, "--out", out, *_as_options(self.options)]


class PairsStage(Stage):
    """`gradus pairs`: preference pairs from graded completions."""

    FILES: ClassVar[tuple[str, ...]] = ("graded",)
    TAKEN: ClassVar[tuple[str, ...]] = ("out",)

    kind: Literal["pairs"]
    graded: Annotated[list[str], Field(min_length=1)]
    """Folders of evaluations or runs, or files of graded completions."""
    options: Options = {}

    def outputs(self, folder: Path) -> dict[str, Path]:
        return {"file": folder / "pairs.jsonl"}

    def command(self, folder: Path, service: str | None) -> list[str]:
        return ["pairs", *self.graded, "--out", str(self.outputs(folder)["file"]), *_as_options(self.options)]


class CompareStage(Stage):
    """`gradus compare BEFORE AFTER`."""

    FILES: ClassVar[tuple[str, ...]] = ("before", "after")
    TAKEN: ClassVar[tuple[str, ...]] = ("json", "html")

    kind: Literal["compare"]
    before: str
    after: str
    options: Options = {}

    def outputs(self, folder: Path) -> dict[str, Path]:
        return {"results": folder / "comparison.json", "report": folder / "comparison.html"}

    def command(self, folder: Path, service: str | None) -> list[str]:
        places = self.outputs(folder)
        to = ["--json", str(places["results"]), "--html", str(places["report"])]
        return ["compare", self.before, self.after, *to, *_as_options(self.options)]


class MergeStage(Stage):
    """`gradus merge ADAPTER`."""

    FILES: ClassVar[tuple[str, ...]] = ("adapter",)
    TAKEN: ClassVar[tuple[str, ...]] = ("out",)

    kind: Literal["merge"]
    adapter: str
    options: Options = {}

    def outputs(self, folder: Path) -> dict[str, Path]:
        return {"model": folder / "merged"}

    def command(self, folder: Path, service: str | None) -> list[str]:
        return ["merge", self.adapter, "--out", str(self.outputs(folder)["model"]), *_as_options(self.options)]


class GateStage(Stage):
    """`gradus gate`: whether a model is promoted. A refusal ends the pipeline."""

    FILES: ClassVar[tuple[str, ...]] = ("model",)

    kind: Literal["gate"]
    model: str | None = None
    """What is promoted; None: nothing is, the gates only let the pipeline go on."""
    significance: Level = 0.05
    gates: Annotated[list[Gate], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_told_apart(self) -> GateStage:
        refuse_twins(self.gates)
        return self

    def outputs(self, folder: Path) -> dict[str, Path]:
        return {"record": folder / "promotion.json"}

    def command(self, folder: Path, service: str | None) -> list[str]:
        return ["gate", str(self.wish(folder)), "--out", str(self.outputs(folder)["record"])]

    def wish(self, folder: Path) -> Path:
        """Where the pipeline writes what the command reads."""
        return folder / "gates.json"


class CommandStage(Stage):
    """Any program, without a shell. `gradus` is this one, whatever is on PATH; in words `{folder}` is the stage's own
    folder, `{python}` this Python, and `{service}` where answers are graded."""

    FILES: ClassVar[tuple[str, ...]] = ("inputs",)

    kind: Literal["command"]
    run: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments."""
    inputs: list[str] = []
    """Files and folders that it reads: when one changes, it runs again. A word of `run` that is the same as one of them
    is looked for in the same places."""
    leaves: dict[str, str] = {}
    """What it leaves, by name; paths in the stage's folder."""

    @field_validator("leaves")
    @classmethod
    def _stays_in_its_folder(cls, value: dict[str, str]) -> dict[str, str]:
        for name, path in value.items():
            if not re.fullmatch(r"[a-z0-9_]+", name):
                raise ValueError(
                    f"{name!r} is no name for what a stage leaves; write it in small letters, digits and _"
                )
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"{name}: {path!r} is not in the stage's folder")
        return value

    @property
    def wants_service(self) -> bool:
        return any("{service}" in word for word in self.run)

    def outputs(self, folder: Path) -> dict[str, Path]:
        return {"folder": folder, **{name: folder / path for name, path in self.leaves.items()}}

    def command(self, folder: Path, service: str | None) -> list[str]:
        meant = {"{folder}": str(folder), "{python}": sys.executable, "{service}": service or ""}
        return [_replaced(word, meant) for word in self.run]


AnyStage = Annotated[
    TrainStage | EvalStage | SampleStage | PairsStage | CompareStage | MergeStage | GateStage | CommandStage,
    Field(discriminator="kind"),
]


def references(value: Any) -> Iterator[tuple[str, str]]:
    """Every `{name.output}` in the texts of a tree of values."""
    if isinstance(value, str):
        yield from REFERENCE.findall(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)


def resolved(value: Any, places: Mapping[tuple[str, str], Path]) -> Any:
    """The tree with every `{name.output}` replaced by its path."""
    if isinstance(value, str):
        return REFERENCE.sub(lambda found: str(places[found[1], found[2]]), value)
    if isinstance(value, Mapping):
        return {name: resolved(item, places) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(item, places) for item in value]
    return value


def _replaced(text: str, meant: Mapping[str, str]) -> str:
    for word, value in meant.items():
        text = text.replace(word, value)
    return text


def _as_options(options: Mapping[str, Any]) -> list[str]:
    """`samples: 4` as `--samples=4`, `greedy: false` as `--no-greedy`, a list as the option again and again."""
    return [word for name, value in options.items() for word in _as_option(name.replace("_", "-"), value)]


def _as_option(name: str, value: Any) -> list[str]:
    if isinstance(value, list):
        return [word for item in value for word in _as_option(name, item)]
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [] if value is None else [f"--{name}={value}"]
