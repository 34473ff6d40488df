"""Texts to pretrain on: cleaned, without duplicates, and with a reason for each one that is left
out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from corpus.contamination import EvalIndex
from corpus.texts import clean_text
from gradus.row_reader import Row
from tests.conftest import Cli

LONG = (
    "The river runs past the old mill and the people of the town walk there in the evening when it"
    " is warm outside"
)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\r\nb\rc", "a\nb\nc"),
        ("a  \n\n\n\nb\t", "a\n\nb"),
        ("\ufeffa\u200bb\x00c\x1b[0m", "abc[0m"),
        ("a\u00a0b\u2028c", "a b c"),
        ("e\u0301", "\u00e9"),
        ("\n\n  x", "  x"),
        ("def f():\n\treturn 1", "def f():\n\treturn 1"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        ),
        ("a\ud800b", "ab"),
        ("", ""),
    ],
)
def test_cleaning_changes_no_words(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    assert clean_text(clean) == clean


def test_texts_of_files_folders_and_rows_become_one_file_without_duplicates(
    gradus: Cli, tmp_path: Path
) -> None:
    """Each text that is left out has its reason: other bytes, too short, repetitive, the same,
    nearly the same."""
    books = tmp_path / "books"
    (books / "inner").mkdir(parents=True)
    (books / "a.txt").write_bytes(f"{LONG}.\r\n".encode())
    (books / "b.md").write_text(LONG.upper() + "!")
    (books / "c.txt").write_bytes(b"\xff\xfe\x00")
    (books / "inner" / "d.txt").write_text("too short")
    (books / "e.txt").write_text(f"{LONG}\n" * 5)
    (books / "cover.png").write_bytes(b"\x89PNG")
    rows: list[Mapping[str, Any]] = [
        {"body": f"{LONG} today"},
        {"body": "Other words. " * 12},
        {"text": LONG},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out.jsonl"
    done = gradus("tasks", "texts", books, tmp_path / "rows.jsonl", "--column", "body", "-o", out)
    assert done.status == 0, done.err
    assert read(out) == [
        {"text": f"{LONG}.", "source": str(books / "a.txt")},
        {"text": ("Other words. " * 12).strip(), "source": f"{tmp_path}/rows.jsonl:2"},
    ]
    why = {
        row["where"].removeprefix(f"{tmp_path}/"): row["reasons"][0]
        for row in read(tmp_path / "out.rejected.jsonl")
    }
    assert why == {
        "books/b.md": f"the same text, at {books}/a.txt",
        "books/c.txt": "is not UTF-8 text, at byte 0",
        "books/e.txt": "80% of its lines stand before in it",
        "books/inner/d.txt": "2 words, fewer than 20",
        "rows.jsonl:1": f"95% of the runs of 5 words of the text, at {books}/a.txt",
        "rows.jsonl:3": f"{tmp_path}/rows.jsonl:3: body: is missing or empty",
    }
    short = gradus("tasks", "texts", books, "--min-words", "1", "-o", out, "--force")
    assert (short.status, len(read(out))) == (0, 2)


@pytest.mark.parametrize(
    ("paths", "out", "why"),
    [
        (["none.txt"], "o.jsonl", "none.txt: file not found"),
        (["a.pdf"], "o.jsonl", "must end in .txt, .md, .jsonl"),
        (["empty"], "o.jsonl", "no texts found"),
        (["."], "o.jsonl", "is also an input"),
        (["a.txt"], "a.txt", "is also an input"),
    ],
)
def test_what_cannot_be_read_or_would_be_overwritten_is_refused(
    paths: list[str], out: str, why: str, gradus: Cli, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("a.txt", "a.pdf"):
        (tmp_path / name).write_text(LONG)
    said = gradus(
        "tasks", "texts", *(tmp_path / path for path in paths), "-o", tmp_path / out, "--force"
    )
    assert (said.status, why in said.err) == (2, True), said.err
    assert (tmp_path / "a.txt").read_text() == LONG


def test_a_text_that_quotes_what_is_measured_on_is_contaminated() -> None:
    measured = [Row("eval:1", {"id": "e", "prompt": LONG, "tests": "let () = assert (f 2 = 3)"})]
    index = EvalIndex(measured)
    assert index.find_leaks({"text": f"A book begins. {LONG}. It goes on."})
    assert not index.find_leaks(
        {
            "text": (
                "A book about another river, far away from here, with no mill and no people at all."
            )
        }
    )
