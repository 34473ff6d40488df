"""The wire is fixed: its JSON Schema is committed beside this file, and messages that others wrote
still parse.

A change of the contract on purpose is written down with `python
tests/contract/test_wire_schema.py`, and reviewed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic.json_schema import models_json_schema

from gradus.contract import RESULT, Faulted, GraderName
from gradus.descriptions import GraderList
from gradus.errors import FaultKind
from gradus.rest import REQUESTS, GradeResponse, JobStatus, Problem
from gradus.tasks.story import StoryTask

HERE = Path(__file__).parent
COMMITTED = HERE / "wire.schema.json"
GOLDEN = HERE / "golden"


def schema() -> dict[str, Any]:
    """Of everything that is sent (requests, as they are read) and answered (the rest, as it is
    written)."""
    _, requests = models_json_schema([(model, "validation") for model in REQUESTS.values()])
    answers = (GradeResponse, JobStatus, GraderList, Problem)
    _, answered = models_json_schema([(model, "serialization") for model in answers])
    return {"requests": _bare(requests["$defs"]), "answers": _bare(answered["$defs"])}


def _bare(node: Any) -> Any:
    """Without titles and descriptions: words about the wire are not the wire."""
    if isinstance(node, list):
        return [_bare(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _bare(value)
        for key, value in node.items()
        if key not in ("title", "description")
        or isinstance(value, dict)  # a dict: a field of that name
    }


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def test_the_wire_is_what_was_committed() -> None:
    assert schema() == json.loads(COMMITTED.read_text()), (
        "the contract on the wire has changed, and other people's trainers are written to it; if"
        " that is meant, run `python tests/contract/test_wire_schema.py` and commit"
        " wire.schema.json"
    )


@pytest.mark.parametrize("grader", list(REQUESTS))
def test_golden_requests_parse(grader: GraderName) -> None:
    sent = golden(f"{grader}_request")
    request = REQUESTS[grader].model_validate(sent)
    assert [submission.id for submission in request.submissions] == [
        one["id"] for one in sent["submissions"]
    ]


@pytest.mark.parametrize("grader", list(REQUESTS))
def test_a_request_survives_being_written_and_read(grader: GraderName) -> None:
    request = REQUESTS[grader].model_validate(golden(f"{grader}_request"))
    assert REQUESTS[grader].model_validate_json(request.model_dump_json()) == request


def test_references_are_accepted_as_a_list_as_one_string_and_as_formatted_issues() -> None:
    request = REQUESTS["story"].model_validate(golden("story_request"))
    tasks = [submission.task for submission in request.submissions]
    assert all(isinstance(task, StoryTask) for task in tasks)
    assert [len(task.references) for task in tasks if isinstance(task, StoryTask)] == [1, 2, 2]


def test_the_golden_response_is_written_as_it_was_read() -> None:
    sent = golden("response")
    assert json.loads(GradeResponse.model_validate(sent).model_dump_json()) == sent


def test_the_golden_response_shows_every_kind_of_fault() -> None:
    results = GradeResponse.model_validate(golden("response")).results
    assert {result.fault.kind for result in results if isinstance(result, Faulted)} == set(
        FaultKind
    )


def test_a_fault_with_a_reward_is_refused() -> None:
    faulted = golden("response")["results"][1]
    with pytest.raises(ValidationError, match="reward"):
        RESULT.validate_python(faulted | {"reward": 0.0})


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf"), -0.1, 1.1])
def test_a_verdict_has_a_reward_between_0_and_1(reward: float | None) -> None:
    graded = golden("response")["results"][0]
    with pytest.raises(ValidationError, match="reward"):
        RESULT.validate_python(graded | {"reward": reward})


if __name__ == "__main__":
    COMMITTED.write_text(json.dumps(schema(), indent=1, sort_keys=True) + "\n")
