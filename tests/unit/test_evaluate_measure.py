"""One round of measuring with a scripted model and a scripted service: what is asked, counted and
written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gradus.client import RewardClient
from gradus.descriptions import describe_offline
from gradus.errors import Misuse
from gradus.tasks.ocaml import OcamlTask
from trainer.config.run import PromptConfig
from trainer.evaluate.collect import OnProgress, collect
from trainer.evaluate.completion_store import Completions
from trainer.evaluate.grader_backend import ServiceJudge
from trainer.evaluate.plan import (
    CompletionRequest,
    EvalPlan,
    GeneratedCompletion,
    GenerationError,
    Key,
    Outcome,
    Problem,
)
from trainer.evaluate.results import (
    Evaluation,
    build_evaluation,
    write_outcome,
)
from trainer.evaluate.setup import SamplingOptions, build_plan
from trainer.rewards.judge import Record

OCAML = describe_offline("ocaml")
TASK = OcamlTask(tests="let () = assert (f 1 = 2)")
PROBLEMS = [
    Problem("a", "(* add 1 *)\n", TASK, "add"),
    Problem("b", "(* twice *)\n", TASK),
    Problem("c", "?", TASK),
]


class Service:
    """Grades by what the completion says: `right`, `wrong`, `stuck` (a fault) or something that
    does not type."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.asked.append(body)
        lines = [json.dumps(self._result(submission)) for submission in body["submissions"]]
        return httpx.Response(200, text="\n".join(lines) + "\n")

    def _result(self, submission: dict[str, Any]) -> dict[str, Any]:
        said = submission["completion"]
        id = submission["id"]
        if said == "stuck":
            fault = {"kind": "worker", "message": "the worker died", "retryable": True}
            return {"id": id, "status": "faulted", "fault": fault}
        verdicts: dict[str, tuple[float, bool, str, dict[str, float]]] = {
            "right": (1.0, True, "tests", {"types": 0.25, "tests": 0.75}),
            "wrong": (0.25, False, "tests", {"types": 0.25, "tests": 0.0}),
        }
        reward, passed, stage, components = verdicts.get(
            said, (0.0, False, "types", {"types": 0.0, "tests": 0.0})
        )
        return {
            "id": id,
            "status": "graded",
            "reward": reward,
            "passed": passed,
            "stage": stage,
            "components": components,
            "flags": ["degenerate:stub"] if said == "?" else [],
            "rubric": "ocaml/graduated@1",
            "grader": "ocaml@7",
            "toolchain": "ocaml 4.14.1",
            "cpu_ms": 1.0,
            "wall_ms": 2.0,
        }


class Scripted:
    """A source: sample `n` of a prompt is its answer `n`; a greedy one is the last."""

    def __init__(self, answers: dict[str, list[str]]) -> None:
        self._answers = answers

    async def write(
        self, asks: Sequence[CompletionRequest], wanted: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        for ask in asks:
            if ask.key in wanted:
                texts = self._answers[str(ask.prompt)]
                text = texts[ask.sample] if ask.temperature > 0 else texts[-1]
                yield ask, GeneratedCompletion(text, None, None, None, 0.1)


ANSWERS = {
    "(* add 1 *)\n": ["right", "wrong", "?", "right"],
    "(* twice *)\n": ["right", "stuck", "right", "wrong"],
    "?": ["stuck", "stuck", "stuck", "stuck"],
}


@dataclass(frozen=True, slots=True)
class Measured:
    evaluation: Evaluation
    records: list[Record]


def plan(
    problems: Sequence[Problem] = PROBLEMS, rubric: str | None = None, **asked: Any
) -> EvalPlan:
    options = SamplingOptions(**{"model": "m", "samples": 4, **asked})
    return build_plan(options, "t", problems, PromptConfig(), grader="ocaml", rubric=rubric)


def get_measurement(
    asked: EvalPlan,
    service: Callable[[httpx.Request], httpx.Response] | None = None,
    answers: dict[str, list[str]] = ANSWERS,
    problems: Sequence[Problem] = PROBLEMS,
    on_progress: OnProgress = lambda what, done, total: None,
    **client: Any,
) -> Measured:
    async def collected() -> list[Record]:
        graders = RewardClient(
            ["http://service"], transport=httpx.MockTransport(service or Service()), **client
        )
        async with graders:
            judge = ServiceJudge(graders, "ocaml")
            return await collect(
                Scripted(answers), judge, problems, asked, Completions(), on_progress
            )

    records = asyncio.run(collected())
    return Measured(build_evaluation(records, asked, OCAML, name="n", duration_s=1.0), records)


def test_figures_are_those_of_the_verdicts_and_faults_are_only_counted() -> None:
    found = get_measurement(plan()).evaluation.get_measurement("sampled")
    assert found is not None
    assert (found.graded, found.faulted, found.passed, found.unjudged) == (7, 5, 4, 1)
    assert found.faults == {"worker": 5}
    assert found.stopped_at == {"tests": 2, "types": 1}
    assert found.flags == {"degenerate:stub": 1}
    assert found.components == pytest.approx({"types": 6 * 0.25 / 7, "tests": 4 * 0.75 / 7})
    # Task a: 2 of 4, task b: 2 of 3; task c has no verdict and is in no rate.
    assert found.pass_at[1].value == pytest.approx((2 / 4 + 2 / 3) / 2)
    assert found.pass_at[2].value == pytest.approx(((1 - 1 / 6) + 1) / 2)
    assert found.pass_at[4].value == 1.0  # only task a has four verdicts
    assert found.mean_reward is not None
    assert found.mean_reward.value == pytest.approx(
        ((1 + 0.25 + 0 + 1) / 4 + (1 + 1 + 0.25) / 3) / 2
    )
    assert [(p.id, p.kind, p.graded, p.passed, p.faulted) for p in found.problems] == [
        ("a", "add", 4, 2, 0),
        ("b", None, 3, 2, 1),
        ("c", None, 0, 0, 4),
    ]


def test_greedy_is_one_completion_per_task() -> None:
    found = get_measurement(plan(samples=2)).evaluation.get_measurement("greedy")
    assert found is not None
    assert (found.samples, found.temperature, found.graded, found.faulted, found.passed) == (
        1,
        0.0,
        2,
        1,
        1,
    )
    assert found.pass_at[1].method == "wilson"
    assert list(found.pass_at) == [1]


def test_records_keep_the_order_of_tasks_and_samples_whatever_the_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = get_measurement(plan())
    monkeypatch.setattr("trainer.evaluate.collect.HANDFUL", 1)
    small = get_measurement(plan())
    texts = [record["completion"] for record in small.records]
    assert texts == [record["completion"] for record in large.records]
    assert [(r["prompt_id"], r["sample"]) for r in small.records[:5]] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("b", 0),
    ]
    for one, other in zip(
        small.evaluation.measurements, large.evaluation.measurements, strict=True
    ):
        assert one.model_copy(update={"details": other.details}) == other


def test_graders_read_what_the_prompt_has_already_written_and_the_record_does_not() -> None:
    one = [Problem("a", "(* add 1 *)\n", TASK)]
    opened = plan(one, samples=2, greedy=False).model_copy(update={"opening": "<think>\n"})
    found = get_measurement(opened, service := Service(), problems=one)
    sent = [
        submission["completion"] for body in service.asked for submission in body["submissions"]
    ]
    assert sent == ["<think>\nright", "<think>\nwrong"]
    assert [record["completion"] for record in found.records] == ["right", "wrong"]


def test_a_faulted_record_has_no_reward() -> None:
    stuck = [
        record for record in get_measurement(plan()).records if record["completion"] == "stuck"
    ]
    assert {record["reward"] for record in stuck} == {None}
    assert {record["fault"]["message"] for record in stuck} == {"the worker died"}


def test_who_judged_is_taken_from_the_verdicts() -> None:
    evaluation = get_measurement(plan()).evaluation
    assert (evaluation.graders, evaluation.rubrics) == (("ocaml@7",), ("ocaml/graduated@1",))
    assert evaluation.toolchains == ("ocaml 4.14.1",)


def test_rubric_and_task_reach_the_service() -> None:
    service = Service()
    get_measurement(plan(rubric="ocaml/strict@1"), service)
    assert {body["rubric"] for body in service.asked} == {"ocaml/strict@1"}
    assert service.asked[0]["submissions"][0]["task"]["tests"] == TASK.tests


def test_a_service_that_is_away_becomes_faults() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    found = get_measurement(plan(), away, attempts=1).evaluation
    assert found.faulted == 15
    assert [m.pass_at for m in found.measurements] == [{}, {}]
    assert found.graders == ()


def test_progress_counts_every_completion_and_every_result() -> None:
    seen: list[tuple[str, int, int]] = []
    get_measurement(plan(samples=2), on_progress=lambda *step: seen.append(step))
    assert {step for step in seen if step[1] == step[2]} == {("written", 9, 9), ("graded", 9, 9)}


def test_a_completion_with_a_nul_is_graded_and_not_a_misuse() -> None:
    found = get_measurement(
        plan(), answers={str(problem.prompt): ["let f =\0"] * 4 for problem in PROBLEMS}
    )
    assert found.evaluation.faulted == 0
    assert found.records[0]["completion"] == "let f =\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    "numbers", [{"samples": -1}, {"temperature": -0.5}, {"max_new_tokens": 0}, {"samples": 1001}]
)
def test_plans_that_make_no_sense_are_misuse(numbers: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        plan(**numbers)


def test_nothing_to_measure_is_misuse() -> None:
    with pytest.raises(Misuse):
        plan(temperature=0.0, greedy=False)
    for problems in ([], [PROBLEMS[0], PROBLEMS[0]]):
        with pytest.raises(Misuse):
            plan(problems)


def test_what_was_never_written_is_no_verdict_and_no_fault() -> None:
    class Deaf(Scripted):
        async def write(
            self, asks: Sequence[CompletionRequest], wanted: AbstractSet[Key]
        ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
            for ask in asks:
                yield ask, GenerationError("refused", "too long")

    async def collected() -> list[Record]:
        async with RewardClient(
            ["http://service"], transport=httpx.MockTransport(Service())
        ) as graders:
            return await collect(
                Deaf({}), ServiceJudge(graders, "ocaml"), PROBLEMS, plan(), Completions()
            )

    records = asyncio.run(collected())
    evaluation = build_evaluation(records, plan(), OCAML, name="n", duration_s=1.0)
    assert {record["status"] for record in records} == {"generation_error"}
    assert (evaluation.unwritten, evaluation.faulted) == (15, 0)


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    done = get_measurement(plan())
    path = write_outcome(tmp_path / "eval", done.evaluation, done.records)
    assert path == tmp_path / "eval" / "n.json"
    assert Evaluation.model_validate_json(path.read_text()) == done.evaluation
    assert json.loads(path.read_text())["schema"] == "gradus/evaluation@1"
    lines = path.with_name("n.completions.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == done.records
    assert {file.name for file in (tmp_path / "eval").iterdir()} == {
        "n.json",
        "n.completions.jsonl",
    }


def test_a_chat_prompt_is_shown_as_its_messages() -> None:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add 1."}]
    assert Problem("a", prompt, TASK).text == "[system]\nBe brief.\n\n[user]\nAdd 1."
