"""A grader: one folder, one config, five cases, rubrics, one Dockerfile, one service: what is
forgotten fails here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.contract import SUBMISSIONS
from gradus.errors import UnknownGrader
from gradus.resources import configs
from gradus.rest import REQUESTS
from gradus.tasks import TASKS
from services import graders
from services.graders.base import find_installed_graders, load
from services.graders.base.self_test_cases import BASIC, load_cases
from tests.graders import GRADERS, WAITING_SLOTS
from tests.rubrics import RUBRICS, rubrics_of

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
ALL = pytest.mark.parametrize("name", list(GRADERS))


@ALL
def test_every_grader_has_a_folder_of_its_name(name: str) -> None:
    assert find_installed_graders()[name].value.startswith(f"services.graders.{name}.")
    assert (Path(graders.__file__).parent / name / "grader.py").is_file()


@ALL
def test_every_grader_has_the_five_basic_cases(name: str) -> None:
    cases = load_cases(Path(graders.__file__).parent / name / "cases.yaml")
    names = [case.name for case in cases]
    assert set(BASIC) <= set(names)
    assert len(names) == len(set(names))
    for case in cases:
        SUBMISSIONS[name].model_validate(
            {"id": case.name, "completion": case.completion, "task": case.task}
        )


@ALL
def test_every_grader_has_a_config_whose_rubric_exists(name: str) -> None:
    settings: dict[str, Any] = yaml.safe_load((configs() / "graders" / f"{name}.yaml").read_text())
    assert settings["rubric"] in RUBRICS
    assert settings["rubric"] in rubrics_of(name)


@ALL
def test_every_grader_has_a_dockerfile(name: str) -> None:
    text = (ROOT / "deploy" / "docker" / f"grader-{name}.Dockerfile").read_text()
    assert f'"{name}"' in text or f" {name}" in text


@ALL
@pytest.mark.skipif(not COMPOSE.exists(), reason="this version has no docker-compose.yml")
def test_every_grader_has_a_service_that_is_built_from_its_dockerfile(name: str) -> None:
    service = yaml.safe_load(COMPOSE.read_text())["services"][f"grader-{name}"]
    assert service["build"]["dockerfile"].endswith(f"grader-{name}.Dockerfile")
    assert name in " ".join(map(str, service["command"]))


@ALL
def test_every_grader_has_its_types_on_the_wire(name: str) -> None:
    assert name in TASKS.keys() & SUBMISSIONS.keys() & REQUESTS.keys()


@ALL
def test_every_grader_can_be_loaded_by_its_name_and_says_who_it_is(
    name: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(f"{name}_grader")  # skips where its toolchain is missing
    info = load(name).info()
    assert info.name == name
    assert set(info.rubrics) == set(rubrics_of(name))
    assert info.revision
    assert info.toolchain
    assert info.sandbox == (
        "none" if name in WAITING_SLOTS else "bubblewrap"
    )  # who waits for a model runs no answer


def test_every_rubric_belongs_to_a_grader() -> None:
    assert {rubric.partition("/")[0] for rubric in RUBRICS} <= set(GRADERS)


def test_a_grader_that_is_not_installed_is_misuse_that_names_those_that_are() -> None:
    with pytest.raises(
        UnknownGrader, match="no grader 'cobol'; there are: ocaml, rust, story, program, preference"
    ):
        load("cobol")
