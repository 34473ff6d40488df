"""Plain texts to pretrain on: read from files and folders, cleaned, and without duplicates. Trains
nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from corpus.duplicates import find_duplicates
from corpus.similarity import split_words
from corpus.task_rows import Finding
from gradus.errors import Misuse
from gradus.row_reader import SUFFIXES, Row, read_rows

MAX_REPEATED = 0.3
"""Share of the lines of a text that may stand before in it."""
WHOLE = (".txt", ".md")
"""Files that are one text each."""
_UNSEEN = re.compile(
    r"[^\S\n\t"
    r" ]|[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f]"  # noqa: E501
    r"|[\ud800-\udfff\ufeff]"
)
"""White space other than a tab; control characters, marks without a width, halves of characters."""


def read_text_drafts(paths: Iterable[Path], column: str) -> Iterator[Row]:
    """Yield every text of files and folders (by name, with those inside), cleaned; rows have it in
    `column`.

    Raises Misuse for a path that is neither, and for a file of rows that cannot be read.
    """
    for path in paths:
        if not path.exists():
            raise Misuse(f"{path}: file not found")
        files = (
            sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        )
        for file in files:
            if file.suffix in WHOLE:
                yield _read_text_file(file)
            elif file.suffix in SUFFIXES:
                for row in read_rows(file):
                    try:
                        text = clean_text(row.require_valid().text(column))
                        yield Row(row.where, {"text": text, "source": row.where})
                    except Misuse as problem:
                        yield Row(row.where, {}, str(problem))
            elif file is path:
                raise Misuse(
                    f"{path}: the file's name must end in {', '.join((*WHOLE, *SUFFIXES))}"
                )


def clean_text(text: str) -> str:
    """The text in Unicode's form NFC: `\\n` ends lines, at most one empty line in a row.

    Control characters, marks without a width and white space at the ends of lines are taken away;
    white space other than a tab becomes a blank. What joins letters (U+200C, U+200D) stays.
    """
    lines = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    visible_lines = (
        _UNSEEN.sub(lambda match: " " if match[0].isspace() else "", line).rstrip()
        for line in lines
    )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(visible_lines)).strip("\n")


def check_texts(drafts: Sequence[Row], min_words: int) -> Iterator[Finding]:
    """Yield one finding per draft, in order."""
    problems: dict[str, str] = {}
    usable: list[Row] = []
    for draft in drafts:
        problem = draft.problem or _find_fault(str(draft.values["text"]), min_words)
        if problem is None:
            usable.append(Row(draft.where, {"prompt": draft.values["text"]}))
        else:
            problems[draft.where] = problem
    for double in find_duplicates(usable):
        problems[double.row.where] = double.problems[0].replace("prompt", "text", 1)
    for draft in drafts:
        problem = problems.get(draft.where)
        yield Finding(draft, [problem] if problem else [])


def _read_text_file(file: Path) -> Row:
    try:
        text = clean_text(file.read_text(encoding="utf-8-sig"))
        return Row(str(file), {"text": text, "source": str(file)})
    except UnicodeDecodeError as error:
        return Row(str(file), {}, f"is not UTF-8 text, at byte {error.start}")
    except OSError as error:
        return Row(str(file), {}, f"cannot be read: {error.strerror}")


def _find_fault(text: str, min_words: int) -> str | None:
    number = len(split_words(text))
    if number < min_words:
        return f"{number} words, fewer than {min_words}"
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    repeated = 1 - len(set(lines)) / len(lines)
    return f"{repeated:.0%} of its lines stand before in it" if repeated > MAX_REPEATED else None
