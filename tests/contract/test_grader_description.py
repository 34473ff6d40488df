"""What a worker announces of its grader: others use it in place of knowing the grader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gradus.contract import SUBMISSIONS, Graded, RawSubmission, Stage, Submission
from gradus.descriptions import GraderDescription, GraderInfo, describe_offline
from gradus.errors import InternalFault
from gradus.tasks import TASKS
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.api.validate import KnownGrader
from services.broker import Broker
from services.broker.memory import MemoryBroker
from services.broker.streams import StreamsBroker
from services.graders.base import Grader
from services.graders.base.self_test_cases import load_cases
from services.graders.preference.grader import PreferenceGrader
from services.graders.rust.grader import RustGrader
from services.worker import Worker
from tests.graders import GRADERS, class_of

ALL = pytest.mark.parametrize("name", GRADERS)
COBOL = GraderInfo(
    name="cobol", revision="r1", toolchain="cobol 1", rubrics=("cobol/graduated@1",), sandbox="none"
)


class CobolGrader:
    """A grader that no part of Gradus knows."""

    waiting_slots = None

    def info(self) -> GraderInfo:
        return COBOL

    def description(self) -> GraderDescription:
        task = {"type": "object", "properties": {"deck": {"type": "string"}}, "required": ["deck"]}
        return GraderDescription(
            name="cobol",
            task_schema=task | {"additionalProperties": False},
            example={
                "id": "a1",
                "prompt": "p",
                "completion": "MOVE 1 TO X.",
                "task": {"deck": "X = 1"},
            },
            stages=(Stage.EXTRACT, Stage.TESTS),
            rates={"tests": "passed"},
            components=("deck",),
            fences=("cobol",),
        )

    def self_test(self) -> None: ...

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        assert isinstance(submission, RawSubmission)
        return Graded(
            id=submission.id,
            reward=0.5,
            passed=False,
            stage=Stage.TESTS,
            components={"deck": 0.5},
            rubric=rubric,
            grader=COBOL.grader,
            toolchain=COBOL.toolchain,
            cpu_ms=1.0,
            wall_ms=1.0,
        )


@asynccontextmanager
async def working(grader: Grader, broker: Broker) -> AsyncIterator[None]:
    stop = asyncio.Event()
    worker = asyncio.create_task(Worker(grader, broker, slots=1, self_tested=True).run(stop))
    try:
        yield
    finally:
        stop.set()
        await worker


@asynccontextmanager
async def api(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(broker, ApiSettings(registry_ttl_s=0.0, worker_grace_s=0.0))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test"
    ) as client:
        yield client


def body(*tasks: Any) -> dict[str, Any]:
    sent = [
        {"id": f"s{index}", "completion": "c", "task": task} for index, task in enumerate(tasks)
    ]
    return {"submissions": sent, "deadline_s": 20}


# ---------------------------------------------------------------------- a grader joins


@pytest.fixture(params=[pytest.param("memory", marks=pytest.mark.slow), "redis"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    if request.param == "memory":
        made: Broker = MemoryBroker()
    else:
        made = StreamsBroker(request.getfixturevalue("redis_url"), prefix="description:")
    yield made
    await made.close()


async def test_a_worker_with_a_new_grader_joins_a_running_api(broker: Broker) -> None:
    async with api(broker) as client:
        before = await client.post("/v1/grade/cobol", json=body({"deck": "d"}))
        async with working(CobolGrader(), broker):
            while (shown := await client.get("/v1/graders/cobol")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            graded = (await client.post("/v1/grade/cobol", json=body({"deck": "d"}))).json()[
                "results"
            ]
            refused = await client.post("/v1/grade/cobol", json=body({"deck": "d"}, {"desk": 1}))
            document = (await client.get("/openapi.json")).json()
            metrics = (await client.get("/metrics")).text
        after = (await client.post("/v1/grade/cobol", json=body({"deck": "d", "x": 1}))).status_code
        gone = await client.post("/v1/grade/cobol", json=body({"deck": "e"}))
    assert before.status_code == 404
    assert GraderDescription.model_validate(shown.json()) == CobolGrader().description()
    assert (graded[0]["status"], graded[0]["components"]) == ("graded", {"deck": 0.5})
    assert refused.status_code == 422
    assert sorted(error["field"] for error in refused.json()["errors"]) == [
        "submissions.1.task.deck",
        "submissions.1.task.desk",
    ]
    names = document["paths"]["/v1/grade/{grader}"]["post"]["parameters"]
    assert next(one for one in names if one["in"] == "path")["schema"]["enum"] == [*TASKS, "cobol"]
    assert "CobolGradeRequest" in document["components"]["schemas"]
    assert 'gradus_api_results_total{grader="cobol",status="graded"} 1.0' in metrics
    assert (after, gone.status_code) == (422, 200)
    assert gone.json()["results"][0]["fault"]["kind"] == "queue"


async def test_a_grader_without_a_live_worker_has_no_description_and_an_unknown_one_is_not_known() -> (  # noqa: E501
    None
):
    async with api(MemoryBroker()) as client:
        absent, unknown = (
            await client.get("/v1/graders/story"),
            await client.get("/v1/graders/cobol"),
        )
    assert (absent.status_code, unknown.status_code) == (404, 404)
    assert "start one with `gradus worker story`" in absent.json()["detail"]
    assert "there is no grader 'cobol'" in unknown.json()["detail"]


# ---------------------------------------------------------------------- announced schemas


@ALL
def test_the_schema_accepts_the_example_and_every_case_of_the_grader(name: str) -> None:
    grader = KnownGrader(describe_offline(name))
    cases = load_cases(Path(__file__).parents[2] / "services" / "graders" / name / "cases.yaml")
    tasks = [case.task for case in cases] + [TASKS[name].EXAMPLE["task"]]
    for task in tasks:
        assert grader.find_mistakes(task, ()) == []
    SUBMISSIONS[name].model_validate(TASKS[name].EXAMPLE)


async def told(name: str, task: Any) -> list[tuple[str, str]]:
    async with api(MemoryBroker()) as client:
        answer = await client.post(f"/v1/grade/{name}", json=body(task))
    assert answer.status_code in (200, 413, 422)
    errors = answer.json().get("errors", [])
    assert bool(errors) == (answer.status_code != 200)
    return [
        (error["field"].removeprefix("submissions.0.task"), error["message"]) for error in errors
    ]


BAD_TASKS: dict[str, tuple[str, Any, list[tuple[str, str]]]] = {
    "nothing": ("ocaml", {}, [(".tests", "Field required")]),
    "a number": ("ocaml", {"tests": 5}, [(".tests", 'the value is not of type "string"')]),
    "unknown fields": ("ocaml", {"tests": "x", "y": 1}, [(".y", "Extra inputs are not permitted")]),
    "a framework": (
        "ocaml",
        {"tests": "x", "framework": "alcotest"},
        [(".framework", 'the value is not one of "assert" or "ounit2"')],
    ),
    "memory": (
        "rust",
        {"tests": "x", "limits": {"memory_mb": 1}},
        [(".limits.memory_mb", "the value is less than the minimum of 16")],
    ),
    "a file's name": (
        "ocaml",
        {"tests": "x", "files": {"../x.ml": ""}},
        [(".files.../x.ml", r"Names here match ^[a-z][a-z0-9_]*\.mli?$")],
    ),
    "many cases": (
        "rust",
        {"cases": [{"stdout": ""}] * 101},
        [(".cases", "Should have at most 100 items")],
    ),
    "a case": ("rust", {"cases": [{"stdin": ""}]}, [(".cases.0.stdout", "Field required")]),
    "no references": ("story", {}, [(".references", "Field required")]),
    "empty references": (
        "story",
        {"references": []},
        [(".references", "the value has less than 1 item")],
    ),
    "blank references": (
        "story",
        {"references": " ||||| "},
        [(".references", r'the value does not match "[^|\s]"')],
    ),
    "NUL in an open field": (
        "story",
        {"references": ["r"], "team_context": {"a": ["\0"]}},
        [
            (
                ".team_context.a.0",
                (
                    "contains a NUL character (U+0000), which no compiler or tokenizer accepts;"
                    " remove it"
                ),
            )
        ],
    ),
}


@pytest.mark.parametrize("case", BAD_TASKS)
async def test_a_task_is_refused_with_its_field_and_without_its_text(case: str) -> None:
    name, task, mistakes = BAD_TASKS[case]
    assert await told(name, task) == mistakes


@pytest.mark.parametrize(
    "task", [{"references": "a ||||| b"}, {"formatted_issues": "a"}, {"formatted_issues": ["a"]}]
)
async def test_references_may_be_one_string_and_be_called_issues(task: dict[str, Any]) -> None:
    assert await told("story", task) == []
    assert TASKS["story"].model_validate(task)


@pytest.mark.parametrize("padding", ["", 'a\\"b', "\\\\"])
async def test_a_text_that_is_too_long_is_found_whatever_it_holds(padding: str) -> None:
    text = padding * 10 + "x" * 1_000_001
    assert [at for at, _ in await told("ocaml", {"tests": text})] == [".tests"]
    assert await told("ocaml", {"tests": text[:1_000_000]}) == []


def test_a_schema_that_cannot_be_compiled_refuses_nothing() -> None:
    described = describe_offline("story").model_copy(
        update={"task_schema": {"type": "no such type"}}
    )
    grader = KnownGrader(described)
    assert grader.find_mistakes({"any": 1}, ()) == []


# ---------------------------------------------------------------------- what is left to workers


def test_what_only_the_task_class_can_refuse_is_a_fault_that_says_why(
    rust_grader: RustGrader,
) -> None:
    neither = RawSubmission(id="a", completion="c", task={"tests": " "})
    with pytest.raises(
        InternalFault, match="this task cannot be judged: .*give either `tests`"
    ) as fault:
        rust_grader.grade(neither, "rust/graduated@1", 0)
    assert not fault.value.retryable


def test_a_prompt_beside_a_conversation_is_a_fault_that_says_so(
    preference_grader: PreferenceGrader,
) -> None:
    task = {"messages": [{"role": "user", "content": "b"}]}
    with pytest.raises(InternalFault, match="this task cannot be judged: .*give either `prompt`"):
        preference_grader.grade(
            RawSubmission(id="a", prompt="p", completion="c", task=task), "preference/sigmoid@1", 0
        )


# ---------------------------------------------------------------------- the description


@ALL
def test_a_description_names_stages_rates_and_components_that_there_are(name: str) -> None:
    kind = class_of(name)
    task = TASKS[name]
    assert task.STAGES[0] == Stage.EXTRACT
    assert (
        {rule.partition(":")[2] for rule in task.RATES.values()} - {""}
        <= {*task.STAGES}
        <= {*Stage}
    )
    assert list(task.RATES.values())[-1] == "passed"
    assert set(kind.shipped.measures) <= {*kind.shipped.components, "preferred"}


@pytest.mark.parametrize(
    "name",
    [
        "ocaml",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("rust", "story", "preference")),
    ],
)
def test_a_live_grader_describes_itself(name: str, request: pytest.FixtureRequest) -> None:
    grader = request.getfixturevalue(f"{name}_grader")
    said = grader.description()
    assert (said.name, said.task_schema["title"]) == (name, f"{name.title()}Task")
    assert said.reads_prompt is (name == "preference")
    assert GraderDescription.model_validate_json(said.model_dump_json()) == said
    for rubric in grader.info().rubrics:
        graded = grader.grade(SUBMISSIONS[name].model_validate(said.example), rubric, 0)
        assert set(graded.components) <= set(said.components)
        assert graded.stage in said.stages
