"""Rubrics of a user's own, by configuration: the example of docs/rubrics.md, and what is
refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.contract import Diagnostic, RawSubmission, Stage, TestCount
from gradus.errors import InternalFault, Misuse
from gradus.resources import configs
from services.graders.base import user_rubrics
from services.graders.base.code import CodeFacts
from services.graders.base.config_loader import read_settings
from services.graders.base.revision import compute_revision
from services.graders.base.rubric import Rubrics
from services.graders.ocaml.config import OcamlConfig
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.rubric import RUBRICS
from tests.graders import GRADERS, class_of

PAGE = (Path(__file__).parents[2] / "docs" / "rubrics.md").read_text()
HALF = CodeFacts(
    Stage.TESTS, typed_share=1.0, compiled=True, tests=TestCount(passed=1, total=2), blocks=3
)
ALL_PASS = CodeFacts(
    Stage.TESTS, typed_share=1.0, compiled=True, tests=TestCount(passed=2, total=2), blocks=3
)


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def house_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The module of the page, where Python finds it."""
    (tmp_path / "house_rules.py").write_text(block("python"))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "house_rules.py"
    sys.modules.pop("house_rules", None)


def written(folder: Path, changes: dict[str, Any]) -> Path:
    settings = yaml.safe_load((configs() / "graders" / "ocaml.yaml").read_text())
    file = folder / "my_ocaml.yaml"
    file.write_text(yaml.safe_dump(settings | changes))
    return file


def configured(folder: Path, changes: dict[str, Any]) -> Rubrics[CodeFacts]:
    return with_sources(folder, changes)[0]


def with_sources(folder: Path, changes: dict[str, Any]) -> tuple[Rubrics[CodeFacts], list[str]]:
    file = written(folder, changes)
    return user_rubrics.build_rubrics(RUBRICS, read_settings(OcamlConfig, "ocaml", file), file)


def get_rubric(settings: Any, name: str = "ocaml/mine@1") -> dict[str, Any]:
    return {"rubrics": {name: settings}}


def test_the_example_of_the_page_works(tmp_path: Path, house_rules: Path) -> None:
    rubrics = configured(tmp_path, yaml.safe_load(block("yaml")))
    assert tuple(rubrics.rubrics) == (
        "ocaml/mine@1",
        "ocaml/graduated@1",
        "ocaml/strict@1",
        "ocaml/quick@1",
    )
    assert rubrics.score(HALF, "ocaml/mine@1").reward == pytest.approx(0.1 + 0.1 + 0.4)
    assert rubrics.score(ALL_PASS, "ocaml/mine@1").components == {
        "types": 0.1,
        "compile": 0.1,
        "tests": 0.8,
    }
    noisy = CodeFacts(Stage.TYPES, diagnostics=(Diagnostic(stage=Stage.TYPES, message="no"),))
    assert rubrics.score(noisy, "ocaml/quick@1").components == {"passed": 0.0, "calm": 0.25}


def test_a_grader_grades_by_the_example_and_says_so(
    tmp_path: Path, house_rules: Path, ocaml_grader: OcamlGrader
) -> None:
    file = written(tmp_path, yaml.safe_load(block("yaml")))
    mine = OcamlGrader(file, ocaml_grader.sandbox)
    submission = {
        "id": "a",
        "completion": "```ocaml\nlet f x = x\n```",
        "task": {"tests": "let () = assert (f 1 = 2)"},
    }
    try:
        got = mine.grade(RawSubmission.model_validate(submission), "ocaml/mine@1", 0)
    finally:
        mine.warm.close()
    assert (got.rubric, got.reward) == ("ocaml/mine@1", pytest.approx(0.2))
    assert got.grader != ocaml_grader.info().grader
    assert mine.info().rubrics[0] == "ocaml/mine@1"


def test_shaping_costs_what_it_costs_under_shipped_rubrics(tmp_path: Path) -> None:
    rubrics = configured(tmp_path, get_rubric({"weights": {"tests": 1.0}}))
    assert rubrics.score(ALL_PASS, "ocaml/mine@1").components == {"tests": 1.0, "style": -0.04}


def test_a_changed_function_is_another_source_and_so_another_revision(
    tmp_path: Path, house_rules: Path
) -> None:
    settings = get_rubric({"function": "house_rules:quick"})
    _, before = with_sources(tmp_path, settings)
    house_rules.write_text(block("python") + "\n")
    _, after = with_sources(tmp_path, settings)
    assert len(before) == len(after) == 1
    module = class_of("ocaml").__module__
    assert compute_revision(module, *before) != compute_revision(module, *after)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown component": (
        get_rubric({"weights": {"typs": 0.1}}),
        r"ocaml/mine@1\.weights\.typs: the ocaml grader",
    ),
    "a weight over 1": (
        get_rubric({"weights": {"tests": 2}}),
        r"rubrics\.ocaml/mine@1\.weights\.tests",
    ),
    "weights over 1": (
        get_rubric({"weights": {"tests": 0.8, "types": 0.8}}),
        "add up to more than 1",
    ),
    "both": (get_rubric({"weights": {}, "function": "a:b"}), "either `weights` or `function`"),
    "neither": (get_rubric({}), "either `weights` or `function`"),
    "no such module": (
        get_rubric({"function": "not_there.at_all:f"}),
        r"ocaml/mine@1\.function: not_there",
    ),
    "no such function": (
        get_rubric({"function": "json:nothing"}),
        r"ocaml/mine@1\.function: json:nothing",
    ),
    "no source": (get_rubric({"function": "math:sqrt"}), r"ocaml/mine@1\.function: math:sqrt"),
    "no path": (get_rubric({"function": "json.dumps"}), r"rubrics\.ocaml/mine@1\.function"),
    "a shipped name": (
        get_rubric({"weights": {}}, "ocaml/strict@1"),
        r"rubrics\.ocaml/strict@1: name it",
    ),
    "another grader's name": (
        get_rubric({"weights": {}}, "rust/mine@1"),
        r"rubrics\.rust/mine@1: name it",
    ),
    "no name": (get_rubric({"weights": {}}, "mine"), r"rubrics\.mine"),
    "an unknown default": (
        {"rubric": "ocaml/other@1"},
        "rubric: no rubric 'ocaml/other@1'; there are: ocaml/grad",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_rubric_that_cannot_be_used_is_misuse_that_names_file_and_key(
    case: str, tmp_path: Path
) -> None:
    changes, named = BAD[case]
    with pytest.raises(Misuse, match=named) as refused:
        configured(tmp_path, changes)
    assert "my_ocaml.yaml: " in str(refused.value)


@pytest.mark.parametrize(
    "returned", ["{'tests': 1.5}", "{'tests': -0.5}", "{'tests': float('nan')}", "None", "1 / 0"]
)
def test_a_function_that_gives_no_reward_is_a_fault(
    returned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong_rules.py").write_text(f"def rule(facts):\n    return {returned}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wrong_rules", raising=False)
    rubrics = configured(tmp_path, get_rubric({"function": "wrong_rules:rule"}))
    with pytest.raises(InternalFault, match=r"the rubric ocaml/mine@1, wrong_rules:rule"):
        rubrics.score(HALF, "ocaml/mine@1")


@pytest.mark.parametrize("name", GRADERS)
def test_every_component_that_may_be_weighed_is_named_on_the_page(name: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
    assert all(f"`{component}`" in row for component in class_of(name).shipped.measures)
