"""Tasks from files: what is read, what is refused with file and line, how they are split, how
prompts come out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import GraderName
from gradus.errors import Misuse
from gradus.resources import configs
from gradus.tasks.ocaml import OcamlTask
from gradus.tasks.rust import RustTask, StdioCase
from gradus.tasks.story import StoryTask
from trainer.config.run import DataConfig, ModelConfig, PromptConfig, SplitSource
from trainer.config.stages import SftStage, load_stage
from trainer.data.demo_tasks import KINDS, select_held_out_constants
from trainer.data.prompts import render, render_text
from trainer.data.rows import load_rows
from trainer.data.tasks import Example, Tasks, load_tasks
from trainer.rewards.judge import add_opening, get_completion_text

ROW = {"id": "a", "prompt": "add one", "tests": "let () = assert (f 1 = 2)"}


def worked_answers(dataset: str, **options: Any) -> list[dict[str, Any]]:
    """The rows of a warm start, as the stage `sft` takes them."""
    data = SplitSource(dataset=dataset, **options)
    config = SftStage(model=ModelConfig(name="m"), data=data, output_dir=Path("run"))
    return [sample.values for sample in load_rows(config).train]


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"t{number}",
        "prompt": f"add {number}",
        "tests": f"let () = assert (f 1 = {number + 1})",
    } | changes


def jsonl(path: Path, *rows: Any) -> str:
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in rows)
    )
    return str(path)


def load(dataset: str, grader: GraderName = "ocaml", **options: Any) -> Tasks:
    return load_tasks(DataConfig(dataset=dataset, **options), grader)


def refused(dataset: str, **options: Any) -> str:
    with pytest.raises(Misuse) as caught:
        load(dataset, **options)
    return str(caught.value)


def test_flat_and_nested_rows_make_the_same_task(tmp_path: Path) -> None:
    fields = {"tests": ROW["tests"], "signature": "val f : int -> int", "packages": ["zarith"]}
    flat = load(jsonl(tmp_path / "a.jsonl", {"id": "a", "prompt": "p", **fields})).train[0]
    nested = load(jsonl(tmp_path / "b.jsonl", {"id": "a", "prompt": "p", "task": fields})).train[0]
    assert flat.task == nested.task == OcamlTask(**fields)


def test_csv_cells_hold_lists_as_json_or_words(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text(
        'id,prompt,tests,packages\na,"two\nlines",t,"base, zarith"\nb,p,u,"[""str""]"\n'
    )
    packages = [
        example.task.packages
        for example in load(str(path)).train
        if isinstance(example.task, OcamlTask)
    ]
    assert packages == [("base", "zarith"), ("str",)]
    path.write_text(
        'id,prompt,cases,dependencies\na,p,"[{""stdin"": ""1"", ""stdout"": ""2""}]",rand regex\n'
    )
    [example] = load(str(path), "rust").train
    assert example.task == RustTask(
        cases=(StdioCase(stdin="1", stdout="2"),), dependencies=("rand", "regex")
    )


def test_stories_may_come_with_separators(tmp_path: Path) -> None:
    rows = {"id": "s", "prompt": "p", "references": "As a user ||||| As an admin"}
    task = load(jsonl(tmp_path / "s.jsonl", rows), "story").train[0].task
    assert isinstance(task, StoryTask)
    assert len(task.references) == 2


def test_a_bad_story_task_is_refused_by_file_and_line(tmp_path: Path) -> None:
    told = {"id": "s", "prompt": "p", "references": " ||||| "}
    dataset = jsonl(tmp_path / "s.jsonl", told)
    with pytest.raises(Misuse) as caught:
        load(dataset, "story")
    assert f"{dataset}:1: references: " in str(caught.value)


@pytest.mark.parametrize("grader", ["ocaml", "rust", "story"])
def test_the_shipped_tasks_load(grader: GraderName) -> None:
    tasks = load(str(configs() / "tasks" / f"{grader}.jsonl"), grader, held_out=0.2)
    assert len(tasks.train) > len(tasks.held_out) > 0


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ((row(1), "{torn"), ":2: is not JSON"),
        ((row(1), "[]"), ":2: is list, not a record"),
        ((row(1), {"id": "x", "prompt": "p"}), ":2: tests: Field required"),
        ((row(1, tests="  "),), ":1: tests: Field required"),
        ((row(1), row(2, prompt="")), ":2: prompt: is missing or empty"),
        ((row(1), row(2, id=None)), ":2: id: is missing or empty"),
        ((row(1), row(2), row(3, id="t1")), ":3: id 't1' occurred before, at"),
        ((row(1), row(1, id="other")), ":2: this prompt with these tests occurred before"),
        ((row(1, testz="x"),), ":1: unknown columns: testz; did you mean tests?"),
        ((row(1, module="1x"),), ":1: module: String should match pattern"),
        ((row(1, prompt="a\0b"), row(2, tests="\0")), ":2: tests: contains a NUL"),
        (
            (row(1), '{"id": "x", "prompt": "p", "tests": NaN}'),
            ":2: is not JSON: NaN is not a finite number",
        ),
        ((), "holds no rows"),
    ],
)
def test_a_bad_row_is_refused_by_file_and_line(
    tmp_path: Path, rows: tuple[Any, ...], says: str
) -> None:
    dataset = jsonl(tmp_path / "tasks.jsonl", *rows)
    message = refused(dataset)
    assert says in message
    assert message.startswith(dataset)


def test_rows_that_cannot_be_used_are_left_out_and_counted_when_told(tmp_path: Path) -> None:
    bad = [row(1), row(9, prompt=""), row(8, tests="  "), row(1, id="again"), row(7, id="t2")]
    dataset = jsonl(tmp_path / "tasks.jsonl", row(1), row(2), *bad, row(3))
    held_out = jsonl(tmp_path / "held_out.jsonl", row(2, id="elsewhere"), row(4), row(4))
    loaded = load(dataset, eval_dataset=held_out, unusable="skip")
    assert [one.id for one in loaded.train] == ["t1", "t3"]
    assert [one.id for one in loaded.held_out] == ["elsewhere", "t4"]
    assert [text.split(": ")[0].rpartition(":")[2] for text in loaded.skipped[:-1]] == [
        "3",
        "4",
        "5",
        "6",
        "7",
        "3",
    ]
    assert "'elsewhere' is also in" in loaded.skipped[-1]
    assert "holds no rows that can be used: " in refused(
        jsonl(tmp_path / "b.jsonl", bad[1]), unusable="skip"
    )


def test_a_csv_row_with_a_cell_too_many_is_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text('id,prompt,tests\na,"two\nlines",t\nb,p,u,more\n')
    assert f"{path}:4: does not have 3 cells" in refused(str(path))


def test_columns_are_renamed_and_dropped_when_told(tmp_path: Path) -> None:
    dataset = jsonl(tmp_path / "a.jsonl", {"id": 1, "problem": "p", "tests": "t", "extra": 1})
    assert "unknown columns: problem; did you mean prompt?, extra;" in refused(dataset)
    loaded = load(dataset, columns={"prompt": "problem"}, ignore_columns=["extra"]).train[0]
    assert (loaded.id, loaded.prompt) == ("1", "p")
    assert load(dataset, columns={"prompt": "problem"}, ignore_columns=["*"]).train
    assert "no such column" in refused(dataset, columns={"promt": "problem"})


def test_a_name_that_is_no_file_and_no_dataset_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "cannot be read" in refused("nowhere.jsonl")


def test_variants_of_a_task_stay_on_one_side(tmp_path: Path) -> None:
    rows = [
        row(n, id=f"{n}-{variant}", prompt=f"{variant} {n}")
        for n in range(40)
        for variant in ("add", "plus")
    ]
    tasks = load(jsonl(tmp_path / "t.jsonl", *rows), held_out=0.25)
    trained = {example.task.tests for example in tasks.train}  # type: ignore[union-attr]
    held_out = {example.task.tests for example in tasks.held_out}  # type: ignore[union-attr]
    assert not trained & held_out
    assert len(held_out) == 10


def test_a_held_out_file_may_not_repeat_what_is_trained_on(tmp_path: Path) -> None:
    train = jsonl(tmp_path / "a.jsonl", row(1), row(2))
    held_out = jsonl(tmp_path / "b.jsonl", row(2, id="elsewhere"))
    assert "'elsewhere' is also in" in refused(train, eval_dataset=held_out)


def test_worked_examples_take_completion_or_solution(tmp_path: Path) -> None:
    dataset = jsonl(
        tmp_path / "w.jsonl", {"prompt": "p", "completion": "c"}, {"prompt": "q", "solution": "s"}
    )
    rows = worked_answers(dataset)
    assert rows == [{"prompt": "p", "completion": "c"}, {"prompt": "q", "completion": "s"}]
    with pytest.raises(Misuse, match=":1: completion: is missing or empty"):
        worked_answers(jsonl(tmp_path / "v.jsonl", {"prompt": "p"}))


# ---------------------------------------------------------------------------------------- the demo


@pytest.mark.parametrize("grader", ["ocaml", "rust"])
def test_the_demo_never_trains_on_a_held_out_pair(grader: GraderName) -> None:
    demo = f"demo:{grader}"
    tasks = load_tasks(DataConfig(dataset=demo, eval_dataset=f"{demo}/held-out"), grader)
    worked = {row["prompt"] for row in worked_answers(f"{demo}/warm-start")}
    held_out = {example.prompt for example in tasks.held_out}
    assert (len(tasks.train), len(tasks.held_out)) == (240, 60)
    assert not held_out & worked
    assert not held_out & {example.prompt for example in tasks.train}
    assert all(len(select_held_out_constants(kind)) == 5 for kind in KINDS)


def test_the_demo_of_stories_never_trains_on_a_held_out_pair() -> None:
    tasks = load_tasks(
        DataConfig(dataset="demo:story", eval_dataset="demo:story/held-out"), "story"
    )
    worked = worked_answers("demo:story/warm-start")

    def pairs(prompts: Iterable[str]) -> set[tuple[str, str]]:
        split = (prompt.strip().split(": ") for prompt in prompts)
        return {(thing, deed) for thing, deeds in split for deed in deeds.split(", ")}

    held_out = pairs(example.prompt for example in tasks.held_out)
    trained = pairs(example.prompt for example in tasks.train) | pairs(
        row["prompt"] for row in worked
    )
    assert (len(tasks.train), len(tasks.held_out), len(held_out)) == (240, 20, 60)
    assert not held_out & trained
    assert {deed for _, deed in held_out} <= {deed for _, deed in trained}


def test_the_demo_is_the_same_every_time() -> None:
    first, second = (worked_answers("demo:ocaml/warm-start", limit=50) for _ in range(2))
    assert first == second
    with pytest.raises(Misuse, match="there is no demo"):
        load("demo:haskell")


# ----------------------------------------------------------------------------------------- prompts

EXAMPLE = Example("a", "Add {x} to y.", OcamlTask(tests="t", signature="val f : int -> int"))


def test_a_chat_prompt_has_a_system_line() -> None:
    config = PromptConfig(style="chat", system="Be brief.", template="{prompt}\n{signature}")
    rendered = render(config, EXAMPLE)
    assert [
        (message["role"], message["content"]) for message in rendered if isinstance(message, dict)
    ] == [
        ("system", "Be brief."),
        ("user", "Add {x} to y.\nval f : int -> int"),
    ]


def test_braces_in_prompts_are_left_alone() -> None:
    assert (
        render_text(PromptConfig(template="{a} {prompt}"), "{prompt} {signature}")
        == "{a} {prompt} {signature}"
    )


STORIES = StoryTask(
    sprint_goal="Fix leaks {fast}.",
    references=("As a tenant, I want help",),
    team_context={
        "tech_stack": ["Django", "Redis"],
        "team": {"size": 3},
        "sprint_goal_notes": "",
        "product_stage": None,
    },
)


def test_a_sprint_goal_and_what_is_known_of_the_team_have_places_in_a_template() -> None:
    config = PromptConfig(template="Goal: {sprint_goal}\n{team_context}\n<think>")
    rendered = render(config, Example("s", "unused", STORIES))
    assert rendered == "Goal: Fix leaks {fast}.\nTech stack: Django, Redis\nTeam: size: 3\n<think>"


def test_nothing_known_of_a_team_is_said_and_a_prompt_stands_for_a_missing_goal() -> None:
    config = PromptConfig(template="{sprint_goal} / {team_context}")
    task = StoryTask(references=("As a tenant, I want help",))
    assert render(config, Example("s", "Plan it.", task)) == "Plan it. / not given"


def test_a_prompt_that_ends_in_think_has_opened_every_completion() -> None:
    assert PromptConfig(template="{prompt}\n<think>\n").opening == "<think>\n"
    assert PromptConfig(style="chat", thinks=True).opening == "<think>\n"
    assert PromptConfig(template="Think in <think>: {prompt}").opening == ""
    assert PromptConfig(style="chat", template="{prompt} <think>").opening == ""


def test_graders_get_the_opening_once() -> None:
    assert add_opening("<think>\n", "hm") == "<think>\nhm"
    assert add_opening("<think>\n", " <think>hm") == " <think>hm"
    assert add_opening("", "hm") == "hm"


@pytest.mark.parametrize("name", ["story_basic", "story_cot"])
def test_the_story_configs_make_prompts_that_show_goal_and_team_and_no_reference(name: str) -> None:
    config = load_stage(configs() / "train" / f"{name}.yaml")
    tasks = load_tasks(config.data, config.reward.grader, config.seed)
    for example in (*tasks.train, *tasks.held_out):
        assert isinstance(example.task, StoryTask)
        shown = str(render(config.prompt, example))
        assert example.task.sprint_goal in shown
        assert all(str(value) in shown for value in example.task.team_context.values())
        assert not [reference for reference in example.task.references if reference in shown]
    assert config.prompt.opening == ("<think>\n" if name == "story_cot" else "")


def test_completions_come_as_text_or_as_messages() -> None:
    assert get_completion_text("let x = 1") == "let x = 1"
    assert (
        get_completion_text(
            [{"role": "assistant", "content": "let x"}, {"role": "assistant", "content": None}]
        )
        == "let x"
    )


# ------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize(
    ("order", "difficulties", "expected"),
    [
        ("shuffled", ["hard", "x", None, "easy"], "0123"),
        ("length", ["hard", "x", None, "easy"], "2031"),
        ("difficulty", ["hard", "easy", "Medium", "easy"], "1320"),
        ("difficulty", [10, "9", 0.5, -1], "3210"),
        ("difficulty", [1, 1, 1, 1], "0123"),
    ],
)
def test_tasks_are_trained_on_in_the_order_asked_for(
    order: str, difficulties: list[Any], expected: str, tmp_path: Path
) -> None:
    prompts = ("add one two", "add one two three", "add", "add one two 3")
    rows = [row(n, prompt=prompts[n], difficulty=level) for n, level in enumerate(difficulties)]
    found = load(jsonl(tmp_path / "tasks.jsonl", *rows), order=order).train
    assert "".join(one.id.removeprefix("t") for one in found) == expected


@pytest.mark.parametrize("level", [None, "", "so so", "nan", "inf"])
def test_a_difficulty_that_orders_nothing_is_refused_by_its_task(
    level: Any, tmp_path: Path
) -> None:
    rows = jsonl(tmp_path / "tasks.jsonl", row(1, difficulty="easy"), row(2, difficulty=level))
    assert "data.order: difficulty: task 't2'" in refused(rows, order="difficulty")
