"""`gradus eval` from its entry: a server of completions, a real service with a trivial grader, the
folder it leaves."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_grader import Service
from fake_openai_server import Json, OpenAiLike, Reply, refused, said
from report_data import answer_in

from gradus.client import RewardClient
from gradus.errors import Misuse, QueueFault
from gradus.tasks.ocaml import OcamlTask
from trainer.config.run import PromptConfig, TrainConfig
from trainer.data.tasks import Example
from trainer.evaluate.command import main
from trainer.evaluate.grader_backend import ServiceJudge
from trainer.evaluate.openai_client import Server
from trainer.evaluate.plan import build_problems
from trainer.evaluate.report import write_report
from trainer.evaluate.results import Evaluation, read_evaluation
from trainer.evaluate.setup import (
    SamplingOptions,
    build_plan,
    find_run_config,
    make_folder_name,
    resolve_prompt_config,
)

TASKS: list[Json] = [
    {"id": "a", "difficulty": "easy", "prompt": "(* a *)", "tests": "let () = assert (f 1 = 2)"},
    {
        "id": "b",
        "difficulty": "hard",
        "kind": "lists",
        "prompt": "(* b *)",
        "tests": "let () = assert (f 1 = 3)",
    },
    {
        "id": "c",
        "difficulty": "hard",
        "kind": "=trees",
        "prompt": "(* c *)",
        "tests": "let () = assert (f 1 = 4)",
    },
]


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
    # Not splitlines(): the grader's messages hold U+2028, which is no end of a line here.
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def scripted(text: str, body: Json, before: int) -> Reply | str:
    """Task a passes; b fails, and is cut off at the limit when greedy; c is never written when
    sampled."""
    if text == "(* a *)":
        return "reward 1"
    if text == "(* b *)":
        return said(
            "reward 0.25", chat=True, finish_reason="length" if body["temperature"] == 0 else "stop"
        )
    return refused(400, "\x1b too long") if body["temperature"] else "fault"


def judge(service: Service, timeout_s: float = 15.0) -> ServiceJudge:
    return ServiceJudge(RewardClient(service.url), "ocaml", timeout_s)


def run(
    at: OpenAiLike, tasks: Path, out: Path, service: Service, grader: str = "ocaml", **changed: Any
) -> int:
    server = Server(at.url, attempts=2, concurrency=4)
    given: dict[str, Any] = {"model": None, "server": server, "samples": 2, "max_new_tokens": 8}
    return main(SamplingOptions(**{**given, **changed}), tasks, grader, judge(service), out)


# ---------------------------------------------------------------------- what it leaves


def test_a_hand_made_run_gives_exactly_these_figures(
    tasks: Path, tmp_path: Path, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    with OpenAiLike(scripted).serving() as like:
        assert run(like, tasks, tmp_path / "out", service) == 3
    results = tmp_path / "out" / "results.json"
    assert capsys.readouterr().out.splitlines()[-1] == str(results)
    found = Evaluation.model_validate_json(results.read_text())
    assert (found.model, found.name, found.tasks, found.served, found.asked_as) == (
        "m",
        "out",
        "tasks.jsonl",
        True,
        "chat",
    )
    assert (found.graders, found.rubrics, found.top_p) == (
        ("ocaml@r1",),
        ("ocaml/graduated@1",),
        1.0,
    )

    sampled = found.get_measurement("sampled")
    assert sampled is not None
    assert sampled.details is not None
    assert (sampled.graded, sampled.faulted, sampled.unwritten, sampled.passed) == (4, 0, 2, 2)
    # Task a: 2 of 2, task b: 0 of 2, task c has no verdict and is in no rate.
    assert {k: rate.value for k, rate in sampled.pass_at.items()} == {1: 0.5, 2: 0.5}
    assert sampled.mean_reward is not None
    assert sampled.mean_reward.value == pytest.approx((1 + 0.25) / 2)
    assert sampled.details.generation_errors == {"refused": 2}
    assert sampled.details.causes == {"generation:refused": 2, "tests": 2}
    assert sampled.details.truncated == 0
    assert sampled.details.rates["tests"].value == 0.5
    assert sampled.details.partial_tests is not None
    assert sampled.details.partial_tests.value == 0.5
    assert {name: group.tasks for name, group in sampled.details.groups["difficulty"].items()} == {
        "easy": 1,
        "hard": 1,
    }
    assert sampled.details.speed.completion_tokens == 8
    assert sampled.details.speed.prompt_tokens == 44

    greedy = found.get_measurement("greedy")
    assert greedy is not None
    assert greedy.details is not None
    assert (greedy.graded, greedy.faulted, greedy.unwritten) == (2, 1, 0)
    assert greedy.details.truncated == 1
    assert [(p.id, p.stage, p.cause, p.difficulty) for p in greedy.problems] == [
        ("a", "passed", "passed", "easy"),
        ("b", "tests", "tests", "hard"),
        ("c", None, None, "hard"),
    ]


def test_each_completion_is_told_for_other_programs(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    with OpenAiLike(scripted).serving() as like:
        run(like, tasks, tmp_path / "out", service)
    folder = tmp_path / "out"
    records = lines_of(folder / "completions.jsonl")
    assert [(r["mode"], r["prompt_id"], r["sample"], r["status"]) for r in records] == [
        ("sampled", "a", 0, "graded"),
        ("sampled", "a", 1, "graded"),
        ("sampled", "b", 0, "graded"),
        ("sampled", "b", 1, "graded"),
        ("sampled", "c", 0, "generation_error"),
        ("sampled", "c", 1, "generation_error"),
        ("greedy", "a", 0, "graded"),
        ("greedy", "b", 0, "graded"),
        ("greedy", "c", 0, "faulted"),
    ]
    rows = list(csv.DictReader((folder / "results.csv").read_text().splitlines()))
    assert [row["status"] for row in rows] == [record["status"] for record in records]
    assert rows[0]["component:tests"] == "1.0"
    assert rows[4]["kind"] == "'=trees"  # no formula
    told = answer_in(folder / "report.html", "/api/run")
    [measured] = told["measured"]
    assert (told["kind"], told["state"], measured["model"]) == ("evaluation", "finished", "m")
    sampled = measured["measurements"][0]
    assert (sampled["tasks"], sampled["pass_at"]["1"]["value"]) == (3, 0.5)
    assert sum(sampled["details"]["generation_errors"].values()) == 2
    assert [row["task"]["tests"] for row in lines_of(folder / "tasks.jsonl")] == [
        task["tests"] for task in TASKS
    ]
    assert read_evaluation(folder).name == "out"


@pytest.mark.slow
def test_an_evaluation_in_a_runs_folder_is_in_its_report(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    run_folder = tmp_path / "run"
    for name, answer in (("first", "reward 0.5"), ("second", "reward 1")):
        with OpenAiLike(lambda *_, said=answer: said).serving() as like:
            assert run(like, tasks, run_folder / "eval" / name, service) == 0
    page = write_report(run_folder, tmp_path / "report.html")
    found = answer_in(page, "/api/run")
    assert [one["name"] for one in found["measured"]] == ["first", "second"]
    rates = found["comparisons"][0]["pass_rate"]
    assert (rates["before"], rates["after"]) == (0.0, 1.0)
    assert rates["change"]["low"] > 0
    [group] = answer_in(page, "/api/samples")["groups"]
    assert group["title"] == "Wrong before, right after"
    assert {card["sides"][1]["completion"] for card in group["cards"]} == {"reward 1"}


# ---------------------------------------------------------------------------------------- going on


def test_the_same_command_goes_on_and_asks_only_for_what_is_missing(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    with OpenAiLike(scripted).serving() as like:
        assert run(like, tasks, tmp_path / "out", service) == 3
    with OpenAiLike(lambda text, body, before: "reward 1").serving() as like:
        assert run(like, tasks, tmp_path / "out", service) == 3
        # What was never written is asked for again; what could not be judged is judged again, and
        # is not written anew.
        assert like.prompts() == ["(* c *)", "(* c *)"]
    found = read_evaluation(tmp_path / "out")
    assert [(m.graded, m.faulted, m.unwritten) for m in found.measurements] == [
        (6, 0, 0),
        (2, 1, 0),
    ]
    assert len(lines_of(tmp_path / "out/completions.jsonl")) == 9


def test_a_server_that_dies_in_the_middle_leaves_what_it_wrote(
    tasks: Path, tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.evaluate.openai_client.GONE_AFTER", 2)
    broken = said("x", chat=True)
    broken.breaks_off = True
    answer = lambda text, body, before: "reward 1" if text == "(* a *)" else broken  # noqa: E731
    with (
        OpenAiLike(answer).serving() as like,
        pytest.raises(QueueFault, match="continues from there"),
    ):
        run(like, tasks, tmp_path / "out", service)
    assert not (tmp_path / "out/results.json").exists()
    with OpenAiLike(lambda text, body, before: "reward 0.5").serving() as like:
        assert run(like, tasks, tmp_path / "out", service) == 0
        assert "(* b *)" in like.prompts()
        kept = 9 - len(like.requests)
    records = lines_of(tmp_path / "out/completions.jsonl")
    assert len(records) == 9
    assert sum(record["completion"] == "reward 1" for record in records) == kept


def test_another_plan_is_refused_and_says_what_differs(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    with OpenAiLike(lambda *_: "reward 1").serving() as like:
        assert run(like, tasks, tmp_path / "out", service) == 0
        for changed, why in (
            ({"temperature": 0.5}, "temperature was 1.0 and is now 0.5"),
            ({"samples": 3}, "samples was 2 and is now 3"),
            ({"model": "other"}, "model was 'm' and is now 'other'"),
            ({"limit": 2}, "tasks_sha256 was"),
        ):
            with pytest.raises(Misuse, match=why):
                run(like, tasks, tmp_path / "out", service, **changed)
        assert run(like, tasks, tmp_path / "out", service, temperature=0.5, fresh=True) == 0
    assert (tmp_path / "out/completions.jsonl.previous-1").exists()
    assert (tmp_path / "out/plan.json.previous-1").exists()


def test_a_task_whose_tests_changed_makes_another_plan(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    with OpenAiLike(lambda *_: "reward 1").serving() as like:
        assert run(like, tasks, tmp_path / "out", service) == 0
        tasks.write_text(tasks.read_text().replace("f 1 = 2", "f 1 = 5"))
        with pytest.raises(Misuse, match="tasks_sha256"):
            run(like, tasks, tmp_path / "out", service)


# ------------------------------------------------------------------------------------------ misuse


@pytest.mark.slow
def test_a_service_that_is_away_is_said_before_anything_is_asked(
    tasks: Path, tmp_path: Path
) -> None:
    with OpenAiLike(scripted).serving() as like:
        asked = SamplingOptions(model=None, server=Server(like.url))
        away = ServiceJudge(RewardClient("http://127.0.0.1:9", attempts=1), "ocaml", 0.1)
        with pytest.raises(QueueFault, match="gradus serve"):
            main(asked, tasks, "ocaml", away, tmp_path / "out")
        assert like.requests == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"samples": 1001}, "samples"),
        ({"temperature": 11.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 0.0, "greedy": False}, "greedy"),
        ({"top_p": 0.0}, "top_p"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"seed": -1}, "seed"),
        ({"body": {"top_k": float("inf")}}, "finite"),
        ({"body": {"logit_bias": {"7": [float("nan")]}}}, "finite"),
        ({"body": {"n": 4, "stream": True}}, "n, stream: cannot be set here"),
        ({"template": "no place"}, "prompt"),
        ({"chat": False, "system": "Be brief."}, "system"),
        ({"like": Path("nowhere")}, "config.resolved.json"),
        ({"grader": "cobol"}, "there is no grader"),
    ],
)
def test_misuse_is_raised_before_anything_is_asked(
    tasks: Path, tmp_path: Path, service: Service, changed: dict[str, Any], why: str
) -> None:
    with OpenAiLike(scripted).serving() as like:
        with pytest.raises(Misuse, match=why):
            run(like, tasks, tmp_path / "out", service, **changed)
        assert like.requests == []


def test_a_server_of_several_models_wants_to_be_told_which(
    tasks: Path, tmp_path: Path, service: Service
) -> None:
    with (
        OpenAiLike(scripted, models=("a", "b")).serving() as like,
        pytest.raises(Misuse, match="a, b"),
    ):
        run(like, tasks, tmp_path / "out", service)
    with (
        OpenAiLike(scripted, models=None).serving() as like,
        pytest.raises(Misuse, match="does not say which"),
    ):
        run(like, tasks, tmp_path / "out", service)


@pytest.mark.parametrize("owner", ["vllm", "openai"])
def test_vllm_is_told_to_sample_as_training_does_and_other_servers_get_no_fields_of_its_own(
    owner: str, tasks: Path, tmp_path: Path, service: Service
) -> None:
    with OpenAiLike(scripted, owner=owner).serving() as like:
        run(like, tasks, tmp_path / "out", service, body={"min_p": 0.1})
    expected = {"min_p": 0.1} | (
        {"top_k": -1, "repetition_penalty": 1.0} if owner == "vllm" else {}
    )
    fields = ("top_k", "min_p", "repetition_penalty")
    for _, body, _ in like.requests:
        assert {name: body[name] for name in fields if name in body} == expected


# ---------------------------------------------------------------------- a model here


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trainer.config.run import FreshModel
    from trainer.models.fresh import make_fresh_model

    folder = tmp_path_factory.mktemp("run") / "final"
    sizes = FreshModel(
        hidden_size=32,
        intermediate_size=64,
        layers=1,
        heads=2,
        kv_heads=1,
        head_dim=16,
        max_length=40,
    )
    make_fresh_model("qwen3", sizes, ["let f x = x + 1"], folder, seed=1)
    return folder


def here(model: Path, tasks: Path, out: Path, service: Service, **changed: Any) -> int:
    given: dict[str, Any] = {
        "model": str(model),
        "samples": 2,
        "max_new_tokens": 4,
        "batch_size": 2,
    }
    return main(SamplingOptions(**{**given, **changed}), tasks, "ocaml", judge(service), out)


@pytest.mark.training
def test_a_model_here_goes_on_as_if_it_had_never_been_stopped(
    model: Path, tasks: Path, tmp_path: Path, service: Service
) -> None:
    assert here(model, tasks, tmp_path / "whole", service) == 0
    whole = lines_of(tmp_path / "whole" / "completions.jsonl")
    assert {record["finish_reason"] for record in whole} <= {"length", "stop"}
    assert all(
        record["prompt_tokens"] > 0 and 1 <= record["completion_tokens"] <= 4 for record in whole
    )
    stopped = tmp_path / "stopped"
    assert here(model, tasks, stopped, service) == 0
    lines = (stopped / "completions.jsonl").read_text().splitlines(keepends=True)
    (stopped / "completions.jsonl").write_text(
        "".join(lines[:3]) + lines[3][:40]
    )  # as a crash leaves it
    assert here(model, tasks, stopped, service) == 0
    assert [r["completion"] for r in lines_of(stopped / "completions.jsonl")] == [
        r["completion"] for r in whole
    ]


@pytest.mark.training
@pytest.mark.slow
def test_a_prompt_that_is_too_long_for_a_model_here_is_a_generation_error(
    model: Path, tasks: Path, tmp_path: Path, service: Service
) -> None:
    long = {"id": "long", "prompt": "x" * 400, "tests": "let () = assert (f 1 = 2)"}
    tasks.write_text(tasks.read_text() + json.dumps(long) + "\n")
    assert here(model, tasks, tmp_path / "out", service, temperature=0.0) == 3
    (found,) = read_evaluation(tmp_path / "out").measurements
    assert (found.mode, found.graded, found.unwritten) == ("greedy", 3, 1)
    records = lines_of(tmp_path / "out" / "completions.jsonl")
    assert "400 tokens" in str(records[-1]["error"]) or "the model takes 40" in str(
        records[-1]["error"]
    )


def test_the_rubric_is_that_of_the_run(tasks: Path, tmp_path: Path, service: Service) -> None:
    reward = {"grader": "ocaml", "rubric": "ocaml/graduated@1"}
    asked = {"model": "m", "data": {"dataset": "d.jsonl"}, "output_dir": "runs/x"}
    config = TrainConfig.model_validate({**asked, "reward": reward})
    (tmp_path / "config.resolved.json").write_text(config.model_dump_json())
    with OpenAiLike(scripted).serving() as like:
        run(like, tasks, tmp_path / "out", service, like=tmp_path, template="{prompt}", chat=True)
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["rubric"] == "ocaml/graduated@1"


def test_the_prompt_is_the_one_of_the_run_that_the_model_lies_in(tmp_path: Path) -> None:
    config = TrainConfig.model_validate(
        {
            "model": "m",
            "data": {"dataset": "d.jsonl"},
            "reward": {"grader": "ocaml"},
            "prompt": {"template": "Write OCaml.\n{prompt}"},
            "output_dir": "runs/x",
        }
    )
    (tmp_path / "config.resolved.json").write_text(config.model_dump_json())
    (tmp_path / "final").mkdir()
    assert find_run_config(tmp_path / "final") == config
    example = Example(id="a", prompt="Add one.", task=OcamlTask(tests="()"))
    assert build_problems([example], config.prompt)[0].prompt == "Write OCaml.\nAdd one."
    assert build_problems([example], PromptConfig())[0].prompt == "Add one."
    asked = SamplingOptions(model="m", server=Server("http://h/v1"), like=tmp_path)
    assert (
        resolve_prompt_config(asked, config).style == "plain"
    )  # a server too is asked as the model was trained


def test_a_server_is_asked_by_chat_unless_told_otherwise() -> None:
    server = Server("http://h/v1")
    assert resolve_prompt_config(SamplingOptions(model="m", server=server), None).style == "chat"
    assert (
        resolve_prompt_config(SamplingOptions(model="m", server=server, chat=False), None).style
        == "plain"
    )
    assert resolve_prompt_config(SamplingOptions(model="m"), None).style == "plain"
    told = resolve_prompt_config(
        SamplingOptions(model="m", chat=True, system="Be brief.", template="Task: {prompt}"), None
    )
    problem = build_problems([Example(id="a", prompt="Add.", task=OcamlTask(tests="()"))], told)[0]
    assert problem.prompt == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Task: Add."},
    ]


def test_a_model_that_lies_in_no_run_has_no_config(tmp_path: Path) -> None:
    assert find_run_config(tmp_path / "a" / "b" / "c") is None
    (tmp_path / "config.resolved.json").write_text("{}")
    with pytest.raises(Misuse):
        find_run_config(tmp_path)


def test_settings_are_typed_and_named_where_they_are_wrong() -> None:
    given = (
        "top_p=0.9",
        "body={top_k: 20, seed: null}",
        "chat=false",
        "concurrency=3",
        "timeout_s=5",
    )
    asked = SamplingOptions.parse((*given, "seed=7"), "m", "http://h/v1", samples=2)
    assert (asked.top_p, asked.chat, asked.seed, asked.samples) == (0.9, False, 7, 2)
    assert asked.body == {"top_k": 20, "seed": None}
    assert asked.server == Server("http://h/v1", concurrency=3, timeout_s=5.0)
    for wrong, message in (
        ("tpo_p=1", "NAME is one of seed, top_p"),
        ("seed", "NAME=VALUE"),
        ("attempts=0", "attempts"),
        ("concurrency=0", "concurrency"),
        ("concurrency=5000", "concurrency"),
        ("timeout_s=0", "timeout_s"),
        ("timeout_s=.nan", "timeout_s"),
        ("body={", "body"),
        ("body=[1]", "body"),
        ("samples=2", "NAME is one of seed, top_p"),
    ):
        with pytest.raises(Misuse, match=message):
            SamplingOptions.parse((wrong,), "m", None)
    with pytest.raises(Misuse, match="limit"):
        SamplingOptions.parse((), "m", None, limit=0)


def test_two_tasks_of_one_name_and_none_at_all_are_refused() -> None:
    problems = build_problems(
        [Example(id="a", prompt="x", task=OcamlTask(tests="()"))], PromptConfig()
    )
    for given in ([], problems * 2):
        with pytest.raises(Misuse, match="id of its own"):
            build_plan(SamplingOptions(model="m"), "t.jsonl", given, PromptConfig())


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen2.5-1.5B", "Qwen-Qwen2.5-1.5B-ocaml"),
        ("../..", "ocaml"),
        ("x" * 300, "x" * 94 + "-ocaml"),
    ],
)
def test_a_folder_is_named_after_model_and_tasks(model: str, name: str) -> None:
    assert make_folder_name(model, Path("configs/tasks/ocaml.jsonl")) == name
