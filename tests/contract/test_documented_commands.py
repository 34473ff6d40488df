"""Every `gradus ...` line of the documentation is understood by the command line and names files
that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from gradus.cli import check_words
from gradus.errors import Misuse

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
ENDS = {"|", ">", "<", "&&", "||", ";", "&", ">>", "2>", "..."}
"""Where the shell takes over."""


def commands_in(page: Path) -> Iterator[str]:
    """The commands in fenced blocks, also after `VARIABLE=value`, and those in tables of what other
    projects have."""
    text = page.read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language not in ("", "sh", "bash", "console"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            found = re.match(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*gradus(?: (?P<words>.*))?$", line)
            if found and found["words"] and not found["words"].lstrip().startswith("#"):
                yield found["words"]
    if page.parent.name == "guides" or page.stem == "reference_coverage":
        yield from re.findall(r"`gradus ([^`]* [^`]*)`", text)


def words_of(command: str) -> list[str]:
    words = shlex.split(command.partition(" #")[0])
    end = next(
        (place for place, word in enumerate(words) if word in ENDS or re.match(r"\d?[<>]", word)),
        len(words),
    )
    return words[:end]


COMMANDS = sorted(
    {(page.relative_to(ROOT), command) for page in PAGES for command in commands_in(page)}
)


def test_there_are_commands_to_look_at() -> None:
    assert len(COMMANDS) > 60
    assert {page.name for page, _ in COMMANDS} >= {
        "README.md",
        "own_tasks.md",
        "pipelines.md",
        "from_autotune.md",
    }


@pytest.mark.parametrize(
    ("page", "command"),
    COMMANDS,
    ids=[f"{page.stem}: {command[:60]}" for page, command in COMMANDS],
)
def test_a_command_of_the_documentation_is_understood_and_its_files_are_there(
    page: Path, command: str
) -> None:
    words = words_of(command)
    is_only_a_name = all(re.fullmatch(r"[a-z]+", word) for word in words)
    check_words([*words, "--help"] if is_only_a_name else words)
    for word in words:
        if word.startswith("configs/") and "*" not in word:
            assert (ROOT / word).exists(), word


SETTING = re.compile(r"`([a-z_]+(?:\.[a-z_0-9]+)+)(?::[^`]*)?`")
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))


def is_known(setting: str, kind: type[Any]) -> bool:
    """Whether a tree of settings has that key, those of TRL's configuration classes included."""
    from trainer.config.files import check_option

    parts = setting.split(".")
    for depth in range(len(parts)):
        if (class_name := kind.TRL_CLASSES.get(tuple(parts[:depth]))) is not None:
            problem, _ = check_option(class_name, parts[depth], None, None)
            return depth == len(parts) - 1 and "unknown key" not in (problem or "")
    at: Any = kind
    for part in parts:
        field = at.model_fields.get(part) if hasattr(at, "model_fields") else None
        if field is None:
            return False
        at = next(
            (
                one
                for one in (field.annotation, *get_args(field.annotation))
                if hasattr(one, "model_fields")
            ),
            None,
        )
    return True


@pytest.mark.training
@pytest.mark.parametrize("page", GUIDES, ids=[page.stem for page in GUIDES])
def test_a_setting_that_a_guide_names_is_one(page: Path) -> None:
    from trainer.config.stages import STAGES

    named = {
        name
        for name in SETTING.findall(page.read_text())
        if not name.endswith((".py", ".yaml", ".csv", ".md", ".lock", ".jsonl"))
    }
    assert named
    for kind in STAGES.values():
        named -= {name for name in named if is_known(name, kind)}
    assert named == set(), "no stage has these settings"


def test_a_command_that_there_is_not_is_noticed() -> None:
    for command in (
        "trian x.yaml",
        "train",
        "eval --sampels 3 m t",
        "tasks splitt a",
        "pipeline run x.yaml --form a",
    ):
        with pytest.raises(Misuse):
            check_words(words_of(command))
