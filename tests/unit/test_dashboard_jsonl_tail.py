"""Growing files are followed by offset; what is cut, replaced, torn, too long or hostile costs
nobody a line more."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from services.dashboard import files
from services.dashboard.files import ConfinedDirectory, JsonlTail, parse_object


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def file(path: Path) -> JsonlTail:
    return JsonlTail(ConfinedDirectory(path.parent), path)


def add(path: Path, *records: Any) -> None:
    with path.open("a") as handle:
        handle.write("".join(json.dumps(record) + "\n" for record in records))


def steps(file: JsonlTail) -> list[Any]:
    found = []
    while True:
        news = file.read_changes()
        found += [line.record.get("step") for line in news.lines]
        if not news.has_more:
            return found


def test_each_line_is_told_once(path: Path, file: JsonlTail) -> None:
    add(path, {"step": 1}, {"step": 2})
    assert steps(file) == [1, 2]
    assert steps(file) == []
    add(path, {"step": 3})
    assert steps(file) == [3]


def test_only_what_is_new_is_read_from_the_disk(
    path: Path, file: JsonlTail, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(path, *({"step": n} for n in range(10_000)))
    assert len(steps(file)) == 10_000
    read: list[bytes] = []
    monkeypatch.setattr(files, "parse_object", lambda text: read.append(text) or parse_object(text))
    add(path, {"step": 10_000})
    assert steps(file) == [10_000]
    assert read == [b'{"step": 10000}\n']


def test_a_file_that_did_not_change_is_not_opened(
    path: Path, file: JsonlTail, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(path, {"step": 1})
    steps(file)
    monkeypatch.setattr(ConfinedDirectory, "open", lambda self, path: pytest.fail("opened"))
    assert not file.read_changes()


def test_a_half_written_line_waits_for_its_end(path: Path, file: JsonlTail) -> None:
    path.write_text('{"step": 1}\n{"step": 2, "re')
    assert steps(file) == [1]
    assert file.unreadable == 0
    with path.open("a") as handle:
        handle.write('ward": 1}\n')
    assert steps(file) == [2]


def test_a_long_file_comes_in_pieces_that_leave_others_their_turn(
    path: Path, file: JsonlTail
) -> None:
    add(path, *({"step": n, "padding": "x" * 1000} for n in range(3000)))
    news = file.read_changes()
    assert news.has_more
    assert 900 < len(news.lines) < 1100
    assert len(news.lines) + len(steps(file)) == 3000


@pytest.mark.parametrize("new", ['{"step": 9}\n', ""])
def test_a_file_that_was_cut_is_read_anew(path: Path, file: JsonlTail, new: str) -> None:
    add(path, {"step": 1}, {"step": 2})
    steps(file)
    path.write_text(new)
    news = file.read_changes()
    assert news.from_start
    assert [line.record["step"] for line in news.lines] == ([9] if new else [])


def test_a_file_that_was_replaced_is_read_anew(path: Path, file: JsonlTail) -> None:
    """As a resumed run does, which forgets the steps that it will do again."""
    add(path, {"step": 1}, {"step": 2}, {"step": 3})
    steps(file)
    partial = path.with_suffix(".partial")
    add(partial, {"step": 1}, {"step": 2}, {"step": 3}, {"step": 4})
    os.replace(partial, path)
    news = file.read_changes()
    assert news.from_start
    assert [line.record["step"] for line in news.lines] == [1, 2, 3, 4]


def test_a_deleted_file_is_forgotten_and_a_new_one_is_read(path: Path, file: JsonlTail) -> None:
    add(path, {"step": 1})
    steps(file)
    path.unlink()
    assert file.read_changes().from_start
    assert not file.read_changes()
    add(path, {"step": 5})
    assert steps(file) == [5]


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1, 2]",
        b'"text"',
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"step": ' + b"9" * 10_000 + b"}",
    ],
)
def test_a_line_that_is_no_object_is_counted_and_left_out(
    path: Path, file: JsonlTail, line: bytes
) -> None:
    path.write_bytes(b'{"step": 1}\n' + line + b'\n\n  \n{"step": 2}\n')
    assert steps(file) == [1, 2]
    assert file.unreadable == 1


def test_only_newlines_end_a_line(path: Path, file: JsonlTail) -> None:
    path.write_bytes('{"step": 1, "x": "a\u2028b\u0085c"}\r\n{"step": 2}\n'.encode())
    assert steps(file) == [1, 2]


def test_a_line_longer_than_any_completion_is_left_out(
    path: Path, file: JsonlTail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 5000)
    path.write_text('{"step": 1}\n{"x": "' + "y" * 20_000 + '"}\n{"step": 2}\n')
    assert steps(file) == [1, 2]
    assert file.unreadable == 5, "of 20,008 characters, in pieces of 5,000"


def test_lines_longer_than_a_piece_are_read_whole(
    path: Path, file: JsonlTail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 1000)
    add(path, {"step": 1, "x": "y" * 3000}, {"step": 2})
    assert steps(file) == [1, 2]
    assert file.unreadable == 0


def test_a_line_is_found_again_by_its_place(path: Path, file: JsonlTail) -> None:
    add(path, {"step": 1, "text": "é€"}, {"step": 2, "text": "b"})
    for line in file.read_changes().lines:
        assert parse_object(path.read_bytes()[line.start : line.end]) == line.record


# ------------------------------------------------------------------------------------------- walls


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    secret = tmp_path_factory.mktemp("outside") / "secret.jsonl"
    secret.write_text('{"step": 42}\n')
    return secret


def test_a_link_that_leads_out_is_refused(path: Path, file: JsonlTail, outside: Path) -> None:
    path.symlink_to(outside)
    assert steps(file) == []


def test_a_folder_that_leads_out_is_refused(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "run").symlink_to(outside.parent)
    assert ConfinedDirectory(tmp_path).open(tmp_path / "run" / outside.name) is None


def test_a_path_that_climbs_out_is_refused(tmp_path: Path, outside: Path) -> None:
    inside = tmp_path / "runs"
    inside.mkdir()
    assert (
        ConfinedDirectory(inside).open(inside / ".." / ".." / outside.parent.name / outside.name)
        is None
    )


def test_a_link_to_what_lies_inside_is_followed(path: Path, file: JsonlTail) -> None:
    add(path.with_name("other.jsonl"), {"step": 3})
    path.symlink_to("other.jsonl")
    assert steps(file) == [3]


def test_a_link_that_is_exchanged_later_is_refused(
    path: Path, file: JsonlTail, outside: Path
) -> None:
    add(path, {"step": 1})
    steps(file)
    path.unlink()
    path.symlink_to(outside)
    assert steps(file) == []


def test_links_in_a_circle_and_pipes_hold_nobody_up(path: Path, file: JsonlTail) -> None:
    path.symlink_to(path.name)
    assert steps(file) == []
    path.unlink()
    os.mkfifo(path)
    assert steps(file) == []
    path.unlink()
    path.mkdir()
    assert steps(file) == []


def test_a_small_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b"12345")
    confined = ConfinedDirectory(tmp_path)
    assert confined.read(file, 5) == b"12345"
    assert confined.read(file, 4) is None
    assert confined.read_end(file, 2) == b"45"
    assert confined.read(tmp_path / "none", 5) is None
    assert confined.read_end(tmp_path / "none", 5) == b""
