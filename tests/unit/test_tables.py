"""Tables of README and docs are what their data files say."""

from __future__ import annotations

from tools import tables


def test_the_tables_are_those_of_their_data_files() -> None:
    assert tables.main(check=True) == 0


def test_a_row_of_the_conformance_matrix_without_a_way_says_what_to_do() -> None:
    for row in tables.read_data("conformance"):
        assert row["leaves_out"] in ("sample", "group", "")
        assert row["remains"]
