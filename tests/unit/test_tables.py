"""Tables of README and docs are what their data files say."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tools import tables


def test_the_tables_are_those_of_their_data_files() -> None:
    assert tables.main(check=True) == 0


def test_each_cost_is_a_figure_of_the_benchmarks() -> None:
    """Measure again, write docs/benchmarks.md, then docs/costs.yaml, then run tools.tables."""
    assert tables.find_unmeasured_costs() == []


def test_a_cost_that_was_not_measured_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    [first, *_] = tables.read_data("costs")
    changed = [{**first, "worker": "4.35", "all": "9.99"}]
    monkeypatch.setattr(tables, "read_data", lambda name: changed)
    assert tables.find_unmeasured_costs() == ["OCaml: worker: 4.35", "OCaml: all: 9.99"]


def test_cores_are_rounded_up() -> None:
    assert tables.count_cores({"sizing": "9.7"}, 10) == 1
    assert tables.count_cores({"sizing": "9.8"}, 10) == 2


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
