"""Records of JSONL, JSON and CSV files: every mistake is named with its place, and none stops the
others."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradus.errors import Misuse
from gradus.row_reader import Row, read_rows


def rows(folder: Path, name: str, content: str | bytes) -> list[Row]:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_rows(file))


def values(found: list[Row]) -> list[dict[str, Any]]:
    return [dict(row.require_valid().values) for row in found]


def places(found: list[Row]) -> list[str]:
    return [Path(row.where).name for row in found]


# ------------------------------------------------------------------------------------------- JSONL


def test_lines_are_records_with_their_line_numbers(tmp_path: Path) -> None:
    found = rows(tmp_path, "a.jsonl", '{"id": "a"}\n\n  \n{"id": "b"}')
    assert values(found) == [{"id": "a"}, {"id": "b"}]
    assert places(found) == ["a.jsonl:1", "a.jsonl:4"]


def test_a_line_that_is_no_json_is_a_problem_of_its_own(tmp_path: Path) -> None:
    good, bad, last = rows(tmp_path, "a.jsonl", '{"id": 1}\n{"id": \n{"id": 3}\n')
    assert bad.problem is not None
    assert bad.problem.startswith("is not JSON: ")
    assert (good.problem, last.problem) == (None, None)
    with pytest.raises(Misuse, match=r"a\.jsonl:2: is not JSON"):
        bad.require_valid()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[1]", "is list, not a record"),
        ('"text"', "is str, not a record"),
        ("null", "is NoneType, not a record"),
        ('{"id": 1, "id": 2}', "the key 'id' occurs twice"),
        ('{"task": {"tests": 1, "tests": 2}}', "the key 'tests' occurs twice"),
        ('{"reward": NaN}', "NaN is not a finite number"),
        ('{"reward": -Infinity}', "-Infinity is not a finite number"),
        ("{'id': 1}", "is not JSON"),
        ('{"id": 1} {"id": 2}', "is not JSON"),
        ('{"a": ' + "[" * 100_000, "is not JSON"),
        ('{"a": ' + "9" * 5_000 + "}", "is not JSON"),
    ],
)
def test_what_is_no_record_says_why(tmp_path: Path, line: str, problem: str) -> None:
    [row] = rows(tmp_path, "a.jsonl", line)
    assert problem in (row.problem or "")
    assert row.values == {}


def test_separators_that_json_allows_inside_texts_do_not_end_a_line(tmp_path: Path) -> None:
    record = {"x": "a\u2028b\u2029c\x85d"}
    assert values(rows(tmp_path, "a.jsonl", json.dumps(record, ensure_ascii=False))) == [record]


def test_windows_line_ends_and_a_byte_order_mark_are_understood(tmp_path: Path) -> None:
    found = rows(tmp_path, "a.jsonl", b'\xef\xbb\xbf{"id": "a"}\r\n{"id": "b"}\r\n')
    assert values(found) == [{"id": "a"}, {"id": "b"}]


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    assert rows(tmp_path, "a.jsonl", "") == []
    assert rows(tmp_path, "b.jsonl", "\n\n") == []
    assert rows(tmp_path, "c.csv", "") == []


def test_a_file_that_is_no_text_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"a\.jsonl:2: is not UTF-8 text"):
        rows(tmp_path, "a.jsonl", b'{"id": "a"}\n{"id": "\xff"}\n')


def test_a_missing_file_and_a_folder_are_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="cannot be read: No such file"):
        list(read_rows(tmp_path / "none.jsonl"))
    with pytest.raises(Misuse, match="cannot be read: Is a directory"):
        list(read_rows(tmp_path))


def test_a_file_of_another_kind_is_misuse_that_names_the_kinds(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"must end in \.jsonl, \.json or \.csv"):
        rows(tmp_path, "a.parquet", "")


def test_a_dash_is_jsonl_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"id": "a"}\nno\n')))
    first, second = read_rows("-")
    assert (first.where, first.values) == ("<stdin>:1", {"id": "a"})
    assert second.where == "<stdin>:2"
    assert second.problem is not None


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_no_text_breaks_the_reader(tmp_path: Path, text: str) -> None:
    for name in ("a.jsonl", "a.csv"):
        try:
            found = rows(tmp_path, name, text)
        except Misuse:
            continue
        assert all(row.problem is None or not row.values for row in found)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=5),
            st.one_of(st.text(max_size=20), st.integers(), st.booleans()),
            max_size=4,
        ),
        max_size=5,
    )
)
def test_what_was_written_is_what_is_read(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    lines = "\n".join(json.dumps(record) for record in records)
    assert values(rows(tmp_path, "a.jsonl", lines)) == records
    assert values(rows(tmp_path, "a.json", json.dumps(records))) == records


# --------------------------------------------------------------------------------------- JSON, CSV


def test_a_json_list_is_records_with_their_numbers(tmp_path: Path) -> None:
    found = rows(tmp_path, "a.json", '[{"id": "a"},\n 3]')
    assert places(found) == ["a.json: record 1", "a.json: record 2"]
    assert found[1].problem == "is int, not a record"


@pytest.mark.parametrize("text", ['{"id": "a"}', '"x"', "3"])
def test_json_that_is_no_list_is_misuse(tmp_path: Path, text: str) -> None:
    with pytest.raises(Misuse, match="holds no list of records"):
        rows(tmp_path, "a.json", text)


def test_broken_json_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="is not JSON"):
        rows(tmp_path, "a.json", '[{"id": ]')


def test_csv_cells_may_hold_lines_commas_and_quotes(tmp_path: Path) -> None:
    found = rows(tmp_path, "a.csv", 'id,tests\na,"let () =\n  assert (f ""x"", 1)"\nb,x\n')
    assert values(found) == [
        {"id": "a", "tests": 'let () =\n  assert (f "x", 1)'},
        {"id": "b", "tests": "x"},
    ]
    assert places(found) == ["a.csv:2", "a.csv:4"]


def test_a_ragged_csv_row_is_a_problem_of_its_own(tmp_path: Path) -> None:
    short, long, good = rows(tmp_path, "a.csv", "id,tests\na\nb,c,d\ne,f\n")
    assert short.problem == long.problem == "does not have 2 cells, as the first line has"
    assert good.values == {"id": "e", "tests": "f"}


def test_csv_columns_of_one_name_are_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"a\.csv:1: a column name occurs twice"):
        rows(tmp_path, "a.csv", "id,id\n1,2\n")


def test_csv_that_is_none_names_its_line(tmp_path: Path) -> None:
    found = rows(tmp_path, "a.csv", 'id,tests\na,b\nc,"x"y\n')
    assert found[0].problem is None
    assert found[-1].problem is not None
    assert found[-1].problem.startswith("is not CSV")
    with pytest.raises(Misuse, match=r"b\.csv:1: is not CSV"):
        rows(tmp_path, "b.csv", 'id,"tests\n')


def test_a_csv_cell_may_be_longer_than_the_libraries_limit(tmp_path: Path) -> None:
    [row] = rows(tmp_path, "a.csv", "id,tests\na," + "x" * 300_000 + "\n")
    assert len(row.values["tests"]) == 300_000
