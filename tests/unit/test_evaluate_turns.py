"""Asking again: figures of chains made by hand, and whole evaluations with a server that learns
from what is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_grader import HIDDEN, Service
from fake_openai_server import Json, OpenAiLike, Reply, refused
from report_data import answer_in
from report_runs import RIGHT, STUCK, WRONG, record_of
from sample_evaluations import build_evaluation, stored

from gradus.client import RewardClient
from gradus.contract import Diagnostic, Faulted, Graded, Severity, Stage, TestCount
from gradus.descriptions import describe_offline
from gradus.errors import Misuse
from gradus.feedback import render_next_turn, reply
from trainer.evaluate.breakdowns import Turns, compute_turns
from trainer.evaluate.collect import extend_conversation, refuse_turns
from trainer.evaluate.command import main
from trainer.evaluate.completion_store import COMPLETIONS, TURNS
from trainer.evaluate.grader_backend import ServiceJudge
from trainer.evaluate.openai_client import Server
from trainer.evaluate.report import write_report
from trainer.evaluate.results import (
    Evaluation,
    compute_measurement,
    find_mismatches,
    read_evaluation,
)
from trainer.evaluate.setup import SamplingOptions
from trainer.pipeline.gates import Gate, judge
from trainer.rewards.judge import Record

OCAML = describe_offline("ocaml")

# ----------------------------------------------------------------------------------------- figures


def record(
    result: Graded | Faulted | str, task: str, turn: int = 1, sample: int = 0, **changed: Any
) -> Record:
    """A record of a verdict or a fault; of a text, a generation error of that kind."""
    given = STUCK if isinstance(result, str) else result
    made = record_of(
        given, mode="greedy", task_id=task, kind=None, sample=sample, prompt="?", completion="x"
    )
    lost = {"status": "generation_error", "fault": None, "error": {"kind": result, "message": "m"}}
    made |= {
        "completion_tokens": 10,
        "prompt_tokens": 100,
        "latency_s": 1.0,
        "written_at": 10.0 * turn,
    }
    return (
        made
        | (lost if isinstance(result, str) else {})
        | ({"turn": turn} if turn > 1 else {})
        | changed
    )


def figures(
    chains: dict[str, list[Graded | Faulted | str]], asked: int = 3, **changed: Any
) -> Turns:
    """Of chains by task, one each."""
    firsts = [record(found[0], task, **changed) for task, found in chains.items()]
    later = [
        record(one, task, turn, **changed)
        for task, found in chains.items()
        for turn, one in enumerate(found[1:], 2)
    ]
    return compute_turns(firsts, later, asked)


def test_the_figures_of_hand_made_chains_are_exactly_these() -> None:
    found = figures(
        {"a": [RIGHT], "b": [WRONG, RIGHT], "c": [WRONG, WRONG, RIGHT], "d": [WRONG, WRONG, WRONG]}
    )
    assert (found.asked, found.chains, found.broken, found.refused) == (3, 4, 0, 0)
    assert {turn: rate.value for turn, rate in found.green_by.items()} == {1: 0.25, 2: 0.5, 3: 0.75}
    # Of all: 1, 2, 3, never.
    assert found.median_turns == 2.5


def test_the_median_counts_failures() -> None:
    found = figures({"a": [RIGHT], "b": [WRONG] * 3, "c": [WRONG] * 3})
    assert found.median_turns is None
    assert found.green_by[3].value == pytest.approx(1 / 3)


def test_tasks_weigh_alike_however_many_chains_they_have() -> None:
    firsts = [record(RIGHT, "a", sample=n) for n in range(3)] + [record(WRONG, "b")]
    assert compute_turns(firsts, [record(WRONG, "b", 2)], 2).green_by[2].value == 0.5


@pytest.mark.parametrize("end", [STUCK, "timeout", "unreachable", "server"])
def test_a_chain_that_breaks_off_is_told_and_is_not_green(end: Faulted | str) -> None:
    found = figures({"a": [RIGHT], "b": [WRONG, end]})
    assert (found.chains, found.broken, found.refused) == (2, 1, 0)
    assert found.green_by[3].value == 0.5


def test_a_prompt_that_became_too_long_ends_a_chain_and_is_no_fault() -> None:
    found = figures({"a": [RIGHT], "b": [WRONG, "refused"]})
    assert (found.broken, found.refused, found.green_by[3].value) == (0, 1, 0.5)


def test_first_answers_without_a_verdict_are_in_no_chain() -> None:
    found = figures({"a": [STUCK], "b": ["timeout"], "c": [RIGHT]})
    assert (found.chains, found.green_by[1].value) == (1, 1.0)


def test_without_chains_there_are_no_figures() -> None:
    empty = figures({})
    assert (empty.chains, empty.green_by, empty.median_turns) == (0, {}, None)


def test_evaluations_of_other_turns_are_sampled_otherwise() -> None:
    def evaluation(turns: Turns | None) -> Evaluation:
        made = compute_measurement(
            [record(RIGHT, "a")],
            mode="greedy",
            temperature=0.0,
            samples=1,
            turns=turns,
            description=OCAML,
        )
        return build_evaluation("x", [record(RIGHT, "a")], measurements=(made,))

    one, three = evaluation(None), evaluation(figures({"a": [RIGHT]}))
    assert find_mismatches(one, three) == ([], ["different sampling"])
    assert find_mismatches(three, three) == ([], [])


@pytest.mark.parametrize(
    ("metric", "more", "passes"),
    [
        ("turns.green_by.2", {"at_least": 0.3}, True),
        ("turns.median_turns", {"at_most": 5, "bound": "value"}, False),
        ("turns.green_by.9", {"at_least": 0.0}, False),
        ("details.invented.errors", {"at_most": 1.0}, False),
        ("details.invented.answers", {"at_most": 0.2}, True),
        ("details.answer_lines.p50", {"at_most": 50, "bound": "value"}, True),
    ],
)
def test_a_figure_that_is_missing_fails_its_gate(
    tmp_path: Path, metric: str, more: dict[str, Any], passes: bool
) -> None:
    """Of 31 tasks 15 pass at once and 16 never do; there are no errors of a compiler."""
    records = [record(RIGHT if n % 2 else WRONG, f"t{n}") for n in range(31)]
    turns = compute_turns(records, [record(WRONG, f"t{n}", 2) for n in range(0, 31, 2)], 2)
    made = compute_measurement(
        records, mode="greedy", temperature=0.0, samples=1, turns=turns, description=OCAML
    )
    file = tmp_path / "results.json"
    file.write_text(
        build_evaluation("x", records, measurements=(made,)).model_dump_json(by_alias=True)
    )
    gate = {"name": "g", "of": str(file), "metric": f"measurements[mode=greedy].{metric}", **more}
    (judged,) = judge([Gate.model_validate(gate)], 0.05)
    assert judged.passed is passes, judged.why


# ---------------------------------------------------------------------- what is said


def test_what_a_model_is_told_is_what_it_was_trained_on() -> None:
    """The words of a repair task and of a trajectory's tool, for one verdict."""
    from corpus.repair_prompt import render_repair_prompt

    remark = Diagnostic(
        stage=Stage.CHECK,
        severity=Severity.ERROR,
        line=1,
        column=2,
        code="E0425",
        message="<|end|> no",
    )
    verdict = WRONG.model_copy(
        update={"diagnostics": (remark,), "tests": TestCount(passed=1, total=3)}
    )
    told = render_next_turn("rust", verdict, "```rust\nfn f() {}\n```\n```rust\nfn g() {}\n```")
    repair = render_repair_prompt("Add.", "rust", "fn f() {}", reply(verdict))
    first, _, shown = told.partition("\n\n")
    assert repair.startswith(first)
    assert repair.endswith(shown)
    assert "1 of 3 tests pass\ncheck: line 1, column 2: error[E0425]: <...> no" in shown


def test_a_chat_goes_on_without_thoughts_and_a_text_below_itself() -> None:
    asked = [{"role": "user", "content": "f"}]
    assert extend_conversation(asked, "<think>\nhm\n</think>\n\nlet f = 1", "No.") == [
        *asked,
        {"role": "assistant", "content": "let f = 1"},
        {"role": "user", "content": "No."},
    ]
    assert extend_conversation("(* f *)\n", "let f = 1", "No.") == "(* f *)\nlet f = 1\n\nNo.\n\n"
    for text, shown in (
        ("<think> and so on", ""),
        ("let f = 1", "let f = 1"),
        ("a </think> b </think> c", " c"),
    ):
        assert extend_conversation(asked, text, "No.")[1] == {"role": "assistant", "content": shown}


# ---------------------------------------------------------------------- whole evaluations

TASKS: list[Json] = [{"id": name, "prompt": f"(* {name} *)", "tests": HIDDEN} for name in "abc"]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service().running() as running:
        yield running


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    return path


def lines_of(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def turn_of(body: Json) -> int:
    return 1 + sum(message["role"] == "assistant" for message in body["messages"])


def learning(text: str, body: Json, before: int) -> Reply | str:
    """Task a passes at once, b when it is told once, c never."""
    task = body["messages"][0]["content"]
    right = {"(* a *)": 1, "(* b *)": 2}.get(task, 99)
    return "reward 1" if turn_of(body) >= right else f"reward 0.{turn_of(body)}"


def run(
    answer: Callable[[str, Json, int], Reply | str],
    tasks: Path,
    out: Path,
    service: Service,
    **changed: Any,
) -> tuple[int, OpenAiLike]:
    with OpenAiLike(answer).serving() as like:
        server = Server(like.url, attempts=2, concurrency=4)
        given: dict[str, Any] = {
            "model": None,
            "server": server,
            "samples": 2,
            "max_new_tokens": 8,
            "turns": 3,
        }
        judge = ServiceJudge(RewardClient(service.url), "ocaml", 60.0)
        return main(SamplingOptions(**{**given, **changed}), tasks, "ocaml", judge, out), like


def test_a_server_that_fails_first_and_passes_when_told_is_green_in_turn_two(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    status, like = run(learning, tasks, tmp_path / "out", service)
    assert status == 0
    found = read_evaluation(tmp_path / "out")
    for mode, each in (("sampled", 2), ("greedy", 1)):
        measured = found.get_measurement(mode)  # type: ignore[arg-type]
        assert measured is not None
        assert measured.turns is not None
        assert {
            turn: rate.value for turn, rate in measured.turns.green_by.items()
        } == pytest.approx({1: 1 / 3, 2: 2 / 3, 3: 2 / 3})
        assert (measured.turns.chains, measured.turns.median_turns) == (3 * each, 2)
        assert measured.pass_at[1].value == pytest.approx(1 / 3), "pass@1 is of first answers"
    # Each of 3 chains of c is asked three times, of b twice, of a once.
    assert len(like.requests) == 3 * (1 + 2 + 3)
    assert [(one["prompt_id"], one["turn"]) for one in lines_of(tmp_path / "out/turns.jsonl")] == [
        *[(name, 2) for name in "bbccbc"],
        *[("c", 3)] * 3,
    ]
    assert len(lines_of(tmp_path / "out/completions.jsonl")) == 9, (
        "first answers are where they always were"
    )


def test_the_model_reads_its_answer_and_what_the_grader_said_and_no_hidden_test(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    _, like = run(learning, tasks, tmp_path / "out", service, samples=1, greedy=False)
    asked = next(body["messages"] for _, body, _ in like.requests if turn_of(body) == 3)
    assert [message["role"] for message in asked] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert (asked[1]["content"], asked[3]["content"]) == ("reward 0.1", "reward 0.2")
    assert asked[2]["content"].startswith("This OCaml code has a mistake.")
    assert "0 of 1 tests pass\ntypes: error: a line separator" in asked[2]["content"]
    assert not any("secret_oracle" in json.dumps(body) for _, body, _ in like.requests)
    seeds = [body["seed"] for _, body, _ in like.requests]
    assert len({*seeds}) == len(seeds)


def test_answers_of_one_turn_are_asked_for_at_the_same_time(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    together = threading.Barrier(2)

    def meeting(text: str, body: Json, before: int) -> Reply | str:
        if turn_of(body) == 2:  # six of them, in pairs
            together.wait(60)
        return learning(text, body, before)

    assert run(meeting, tasks, tmp_path / "out", service)[0] == 0


@pytest.mark.slow
def test_a_text_is_continued_as_a_text(tasks: Path, tmp_path: Path, service: Service) -> None:
    answer = lambda text, body, before: "reward 1" if "has a mistake" in text else "reward 0.5"  # noqa: E731
    status, like = run(
        answer, tasks, tmp_path / "out", service, chat=False, samples=1, greedy=False
    )
    assert status == 0
    assert sorted(like.prompts())[1].startswith(
        "(* a *)reward 0.5\n\nThis OCaml code has a mistake."
    )


def test_the_same_command_goes_on_in_the_middle_of_the_turns(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    def failing(text: str, body: Json, before: int) -> Reply | str:
        return (
            refused(503)
            if turn_of(body) == 2 and "c" in body["messages"][0]["content"]
            else learning(text, body, 0)
        )

    out = tmp_path / "out"
    status, _ = run(failing, tasks, out, service, samples=1)
    assert status == 3
    found = read_evaluation(out)
    assert found.broken == 2
    page = out / "report.html"
    [measured] = answer_in(page, "/api/run")["measured"]
    assert [one["turns"]["broken"] for one in measured["measurements"]] == [1, 1]
    faults = answer_in(page, "/api/samples")["faults"]
    assert any("503: no" in fault["message"] for fault in faults), (
        "its faults are told with the others"
    )
    status, like = run(learning, tasks, out, service, samples=1)
    assert status == 0
    assert sorted(turn_of(body) for _, body, _ in like.requests) == [2, 2, 3, 3], (
        "only what is missing is asked for"
    )
    assert read_evaluation(out).broken == 0
    again, like = run(learning, tasks, out, service, samples=1)
    assert (again, like.requests) == (0, [])


def test_a_turn_is_asked_anew_when_the_one_before_is_judged_otherwise(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    out = tmp_path / "out"
    run(learning, tasks, out, service, samples=1, greedy=False)
    file = out / COMPLETIONS
    before = [
        one | {"grader": "ocaml@older", "stage": "compile", "tests": None} for one in lines_of(file)
    ]
    file.write_text("".join(json.dumps(one) + "\n" for one in before))
    turns = out / TURNS
    spoilt = turns.read_text().replace("0 of 1 tests pass", "came as far as: compile; no test ran")
    turns.write_text(spoilt)
    status, like = run(learning, tasks, out, service, samples=1, greedy=False)
    assert status == 0
    # The first answers are judged again and their turns asked anew; so is turn 3, which had the
    # older turn 2 in it.
    assert sorted(turn_of(body) for _, body, _ in like.requests) == [2, 2, 3]
    assert "no test ran" not in turns.read_text()


@pytest.mark.slow
def test_another_number_of_turns_is_another_plan(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    out = tmp_path / "out"
    assert run(learning, tasks, out, service, turns=1)[0] == 0
    assert not (out / "turns.jsonl").exists()
    with pytest.raises(Misuse, match="turns was 1 and is now 2"):
        run(learning, tasks, out, service, turns=2)
    assert run(learning, tasks, out, service, turns=2, fresh=True)[0] == 0


@pytest.mark.parametrize("turns", [0, -1, 33])
def test_turns_are_bounded(tasks: Path, tmp_path: Path, service: Service, turns: int) -> None:
    with pytest.raises(Misuse, match="turns"):
        run(learning, tasks, tmp_path / "out", service, turns=turns)


def test_scores_of_a_reward_model_are_nothing_to_repair_by() -> None:
    with pytest.raises(Misuse, match="do not say what to repair"):
        refuse_turns(describe_offline("preference"), 2)
    refuse_turns(describe_offline("story"), 2)


def test_a_stored_verdict_that_is_none_is_refused_by_the_task_it_is_of(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    out = tmp_path / "out"
    run(learning, tasks, out, service)
    file = out / COMPLETIONS
    file.write_text(file.read_text().replace('"stage": "tests"', '"stage": "moon"'))
    with pytest.raises(Misuse, match="its stored verdict is invalid"):
        run(learning, tasks, out, service)


def test_a_file_of_turns_that_is_not_ours_is_refused(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    out = tmp_path / "out"
    run(learning, tasks, out, service)
    for line in ('{"mode": "greedy"}', "[" * 100_000):
        (out / TURNS).write_text(line + "\n")
        with pytest.raises(Misuse, match=r"turns\.jsonl:1: not a completion of Gradus"):
            run(learning, tasks, out, service)


@pytest.mark.training
@pytest.mark.slow
def test_a_model_here_is_asked_again_until_its_window_is_full(
    tmp_path: Path, tasks: Path, service: Service
) -> None:
    from trainer.config.run import FreshModel
    from trainer.models.fresh import make_fresh_model

    folder = tmp_path / "run" / "final"
    sizes = FreshModel(
        hidden_size=32,
        intermediate_size=64,
        layers=1,
        heads=2,
        kv_heads=1,
        head_dim=16,
        max_length=200,
    )
    make_fresh_model("qwen3", sizes, ["let f x = x + 1"], folder, seed=1)
    answers = {
        "model": str(folder),
        "samples": 0,
        "temperature": 0.0,
        "max_new_tokens": 4,
        "turns": 3,
    }
    judge = ServiceJudge(RewardClient(service.url), "ocaml", 60.0)
    main(SamplingOptions(**answers), tasks, "ocaml", _Harsh(judge), tmp_path / "out")  # type: ignore[arg-type]
    (measured,) = read_evaluation(tmp_path / "out").measurements
    assert measured.turns is not None
    assert (measured.turns.chains, measured.turns.broken, measured.turns.green_by[3].value) == (
        3,
        0,
        0.0,
    )
    later = lines_of(tmp_path / "out/turns.jsonl")
    assert {one["turn"] for one in later} >= {2}
    assert all(one["prompt"].startswith("(* ") for one in later)
    assert "This OCaml code has a mistake." in later[0]["prompt"]
    assert measured.turns.refused == sum(one["status"] == "generation_error" for one in later)
    # Stopped in the middle of a turn and continued, it is what it was.
    turns = tmp_path / "out/turns.jsonl"
    turns.write_text("".join(turns.read_text().splitlines(keepends=True)[:1]) + '{"mode": "gre')
    main(SamplingOptions(**answers), tasks, "ocaml", _Harsh(judge), tmp_path / "out")  # type: ignore[arg-type]
    assert [(one["turn"], one["completion"]) for one in lines_of(turns)] == [
        (one["turn"], one["completion"]) for one in later
    ]


class _Harsh:
    """The service, to which nothing is right."""

    calls_at_once = 2

    def __init__(self, inner: ServiceJudge) -> None:
        self._inner = inner

    async def known(self, grader: str) -> str:
        return await self._inner.known(grader)

    async def info(self) -> Any:
        return await self._inner.info()

    async def description(self) -> Any:
        return await self._inner.description()

    async def grade(self, submissions: Any, rubric: str | None) -> Any:
        return await self._inner.grade(
            [{**one, "completion": "reward 0.5"} for one in submissions], rubric
        )


def test_the_page_is_told_of_turns_only_where_there_were_any(tmp_path: Path) -> None:
    made = compute_measurement(
        [record(RIGHT, "a"), record(WRONG, "b")],
        mode="greedy",
        temperature=0.0,
        samples=1,
        turns=figures({"a": [RIGHT], "b": [WRONG, WRONG]}, 2),
        description=OCAML,
    )
    evaluation = build_evaluation("x", [record(RIGHT, "a")], measurements=(made,))

    def told(found: Evaluation) -> Any:
        page = write_report(stored(tmp_path / "e", found, []), tmp_path / "report.html")
        return answer_in(page, "/api/run")["measured"][0]["measurements"][0]["turns"]

    turns = told(evaluation)
    assert (turns["asked"], turns["green_by"]["2"]["value"], turns["median_turns"]) == (
        2,
        0.5,
        None,
    )
    without = evaluation.model_copy(
        update={"measurements": (made.model_copy(update={"turns": None}),)}
    )
    assert told(without) is None
