"""Kinds of stages: settings, inputs, outputs and command of each.

In texts of a stage `{name.output}` stands for an output of an earlier stage. Files that a stage
names are searched in the working directory, then in the pipeline file's own folder.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from gradus.yaml_reader import read_mapping
from trainer.config.files import PLACES, resolve_file_name
from trainer.config.run import Section, TrainConfig
from trainer.config.stages import STAGES
from trainer.pipeline.gates import Gates, Level

REFERENCE = re.compile(r"\{([a-z0-9_-]+)\.([a-z0-9_]+)\}")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}")
DATASETS = tuple(map(".".join, PLACES))


class Stage(Section):
    """What all kinds have in common."""

    GOES_ON: ClassVar[bool] = False
    """The command resumes where it was stopped, when it is given again."""
    FILES: ClassVar[tuple[str, ...]] = ()
    """Fields that name a file or folder which is read."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """What it may leave out."""
    LEAVES: ClassVar[Mapping[str, str]] = {}
    """Output files in the stage's folder, by the names that later stages use."""

    kind: str

    def list_outputs(self, folder: Path) -> dict[str, Path]:
        """Return the output files; the stage is done when all exist."""
        return {name: folder / path for name, path in self.LEAVES.items()}

    def build_command(self, folder: Path, service: str | None) -> list[str]:
        """Return the command's words; `service` is where grading is done, None: there."""
        raise NotImplementedError

    @property
    def wants_service(self) -> bool:
        """It has answers graded, by the pipeline's service if there is one."""
        return False

    def files(self) -> list[str]:
        """Return the files and folders that its fields name."""
        values = [getattr(self, name) for name in self.FILES]
        texts = []
        for value in values:
            for text in value if isinstance(value, list) else [value]:
                if text is not None:
                    texts.append(text)
        return texts

    def list_inputs(self) -> list[str]:
        """Return everything that it reads: files, folders, and names on a hub."""
        return self.files()


class TrainStage(Stage):
    """`gradus train CONFIG`, whatever the config trains."""

    GOES_ON = True
    FILES = ("config",)
    OPTIONAL = ("metrics",)
    LEAVES = {"run": "", "model": "final", "metrics": "metrics.jsonl"}

    kind: Literal["train"]
    config: str
    """A file as in configs/train."""
    set: dict[str, Any] = {}
    """Settings of that file to change, by the names that the command line has for them."""

    @field_validator("set")
    @classmethod
    def _refuse_folder_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted({"output_dir", "reward.urls"} & {*value}):
            raise ValueError(f"{taken[0]} is the pipeline's to say")
        return value

    def build_command(self, folder: Path, service: str | None) -> list[str]:
        return ["gradus", "train", self.config, *self.build_overrides(folder, service)]

    def build_overrides(self, folder: Path, service: str | None) -> list[str]:
        """Return the options that change the config."""
        options = {**self.set, "output_dir": str(folder)}
        if service is not None:
            options["reward.urls"] = service
        # JSON is YAML, and what is a text in the one is never a number in the other.
        return [f"--{name}={json.dumps(value)}" for name, value in options.items()]

    def get_setting(self, name: str) -> Any:
        """Return a setting of the config with the stage's changes, as it is written. Raises
        Misuse."""
        if name in self.set:
            return self.set[name]
        section, _, key = name.rpartition(".")
        tree = {**read_mapping(Path(self.config)), **self.set}
        if not section:
            return tree.get(key)
        value = tree.get(section)
        return value.get(key) if isinstance(value, Mapping) else value  # `model: NAME`

    @property
    def wants_service(self) -> bool:
        learns_from_rewards = STAGES.get(self.get_setting("stage") or "grpo") is TrainConfig
        return learns_from_rewards and bool(self.get_setting("reward.grader"))

    def list_inputs(self) -> list[str]:
        named = []
        for name in DATASETS:
            value = self.get_setting(name)
            named += value if isinstance(value, list) else [value]
        named += [model.get("path") for model in self.get_setting("reward.models") or ()]
        config = Path(self.config)
        return [
            *self.files(),
            *(find_beside(text, config) for text in named if isinstance(text, str)),
        ]


class EvalStage(Stage):
    """`gradus eval MODEL TASKS`."""

    GOES_ON = True
    FILES = ("model", "tasks")
    LEAVES = {
        "folder": "",
        "results": "results.json",
        "completions": "completions.jsonl",
        "report": "report.html",
    }

    kind: Literal["eval"]
    model: str
    tasks: str
    grader: str = "ocaml"
    options: list[str] = []
    """Further words of the command, such as `--samples=8`."""

    @field_validator("options")
    @classmethod
    def _refuse_pipeline_options(cls, value: list[str]) -> list[str]:
        for word in value:
            if word.partition("=")[0] in ("--out", "--url", "--model", "--grader", "--no-resume"):
                raise ValueError(f"{word}: is the pipeline's to say")
        return value

    @property
    def wants_service(self) -> bool:
        return True

    def build_command(self, folder: Path, service: str | None) -> list[str]:
        words = ["gradus", "eval", self.model, self.tasks]
        words += ["--grader", self.grader, "--out", str(folder), *self.options]
        return words if service is None else [*words, "--url", service]


class GateStage(Stage):
    """`gradus gate`: whether a model is promoted. A refusal ends the pipeline."""

    FILES = ("model",)
    LEAVES = {"record": "promotion.json"}

    kind: Literal["gate"]
    model: str | None = None
    """What is promoted; None: nothing is, the gates only let the pipeline go on."""
    significance: Level = 0.05
    gates: Gates

    def build_command(self, folder: Path, service: str | None) -> list[str]:
        return [
            "gradus",
            "gate",
            str(self.get_gates_path(folder)),
            "--out",
            str(self.list_outputs(folder)["record"]),
        ]

    def get_gates_path(self, folder: Path) -> Path:
        """Return where the pipeline writes what the command reads."""
        return folder / "gates.json"

    def list_inputs(self) -> list[str]:
        figures = [gate.files for gate in self.gates]
        return [*self.files(), *chain(*figures)]


class CommandStage(Stage):
    """Any program, without a shell. `gradus` is this one, whatever is on PATH; in words `{folder}`
    is the stage's own folder, `{python}` this Python, and `{service}` where answers are graded."""

    FILES = ("inputs",)

    kind: Literal["command"]
    run: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments."""
    inputs: list[str] = []
    """Files and folders that it reads: when one changes, it runs again."""
    leaves: dict[Annotated[str, Field(pattern=r"^[a-z0-9_]+$")], str] = {}
    """Output files by name; paths in the stage's folder."""

    @field_validator("leaves")
    @classmethod
    def _check_paths(cls, value: dict[str, str]) -> dict[str, str]:
        for name, path in value.items():
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"{name}: {path!r} is not in the stage's folder")
        return value

    @property
    def wants_service(self) -> bool:
        return any("{service}" in word for word in self.run)

    def list_outputs(self, folder: Path) -> dict[str, Path]:
        return {"folder": folder, **{name: folder / path for name, path in self.leaves.items()}}

    def build_command(self, folder: Path, service: str | None) -> list[str]:
        meant = {"folder": str(folder), "python": sys.executable, "service": service or ""}
        words = []
        for word in self.run:
            words.append(
                re.sub(r"\{(folder|python|service)\}", lambda match: meant[match[1]], word)
            )
        return words


AnyStage = Annotated[TrainStage | EvalStage | GateStage | CommandStage, Field(discriminator="kind")]


def find_references(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every `{name.output}` in the texts of a tree of values."""
    if isinstance(value, str):
        yield from REFERENCE.findall(value)
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from find_references(item)


def map_texts(tree: Any, change: Callable[[str], str]) -> Any:
    """Make a tree of values with every text changed."""
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, Mapping):
        return {name: map_texts(item, change) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [map_texts(item, change) for item in tree]
    return tree


def replace_references(text: str, places: Mapping[tuple[str, str], Path]) -> str:
    """Replace every `{name.output}` by its path."""
    return REFERENCE.sub(lambda match: str(places[match[1], match[2]]), text)


def find_beside(text: str, path: Path) -> str:
    """Find the file that a text names if it is only beside `path`. A word without `/` and `.` names
    none."""
    is_path = ("/" in text or "." in text) and "{" not in text and len(text.encode()) <= 255
    return resolve_file_name(text, path) if is_path else text
