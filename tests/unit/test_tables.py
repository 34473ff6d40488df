"""Tables of README and docs are what their data files say."""

from __future__ import annotations

from datetime import date, timedelta

from tools import tables


def test_the_tables_are_those_of_their_data_files() -> None:
    assert tables.main(check=True) == 0


def test_a_row_of_the_conformance_matrix_without_a_way_says_what_to_do() -> None:
    for row in tables.read_data("conformance"):
        assert row["leaves_out"] in ("sample", "group", "")
        assert row["remains"]


def test_no_row_of_the_comparison_is_older_than_four_months() -> None:
    """Read the projects' sources again, then set the cells' dates in docs/comparison.yaml."""
    assert tables.find_old_rows(date.today()) == []


def test_an_old_row_is_found() -> None:
    assert len(tables.find_old_rows(date.today() + timedelta(days=400))) == 7


def test_a_cell_of_the_comparison_names_its_source() -> None:
    data = tables.read_data("comparison")
    for row in data["rows"]:
        assert list(row["cells"]) == list(data["projects"])
        for cell in row["cells"].values():
            assert cell["source"] or not cell["value"]
