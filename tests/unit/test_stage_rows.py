"""Rows of answers and preferences: every layout that people have, and every mistake named with its
file and line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from trainer.config.run import PromptConfig, SplitSource
from trainer.config.stages import DpoStage, RewardStage, SftStage
from trainer.data.rows import load_rows

USER = {"role": "user", "content": "Add 1."}
ANSWER = {"role": "assistant", "content": "x + 1"}
OTHER = {"role": "assistant", "content": "x - 1"}


def rows_of(kind: type, tmp_path: Path, rows: list[Any], **settings: Any) -> Any:
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    data = {"dataset": str(file), **settings.pop("data", {})}
    return load_rows(kind(model={"name": "m"}, output_dir="runs/x", data=data, **settings))


def values(kind: type, tmp_path: Path, row: Any, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = rows_of(kind, tmp_path, [row], **settings).train[0].values
    return found


# ----------------------------------------------------------------------------------------- answers


def test_prompts_with_completions_or_solutions_go_through_the_template(tmp_path: Path) -> None:
    told = PromptConfig(template="Task: {prompt}\n")
    for name in ("completion", "solution"):
        row = {"id": "a", "prompt": "add 1", name: "x + 1", "difficulty": "easy"}
        assert values(SftStage, tmp_path, row, prompt=told) == {
            "prompt": "Task: add 1\n",
            "completion": "x + 1",
        }


def test_a_chat_prompt_makes_messages_of_texts(tmp_path: Path) -> None:
    told = PromptConfig(style="chat", system="Be brief.")
    assert values(SftStage, tmp_path, {"prompt": "Add 1.", "completion": "x + 1"}, prompt=told) == {
        "prompt": [{"role": "system", "content": "Be brief."}, USER],
        "completion": [ANSWER],
    }


def test_alpaca_rows_put_the_input_under_the_instruction(tmp_path: Path) -> None:
    row = {"instruction": "Translate.", "input": "chat", "output": "cat"}
    assert values(SftStage, tmp_path, row) == {"prompt": "Translate.\n\nchat", "completion": "cat"}
    assert values(SftStage, tmp_path, {**row, "input": ""}) == {
        "prompt": "Translate.",
        "completion": "cat",
    }


def test_a_conversation_is_a_prompt_and_its_last_answer(tmp_path: Path) -> None:
    asked = [USER, OTHER, {"role": "user", "content": "No, add."}]
    assert values(SftStage, tmp_path, {"messages": [*asked, ANSWER]}) == {
        "prompt": asked,
        "completion": [ANSWER],
    }


@pytest.mark.parametrize("sft", [{"assistant_only_loss": True}, {"completion_only_loss": False}])
def test_a_conversation_stays_whole_where_the_loss_is_on_more_than_its_last_answer(
    sft: dict[str, Any], tmp_path: Path
) -> None:
    assert values(SftStage, tmp_path, {"messages": [USER, ANSWER]}, sft=sft) == {
        "messages": [USER, ANSWER]
    }


def test_the_system_line_of_the_config_goes_before_conversations_that_have_none(
    tmp_path: Path,
) -> None:
    told = PromptConfig(style="chat", system="Be brief.")
    own = {"role": "system", "content": "Be long."}
    assert (
        values(SftStage, tmp_path, {"messages": [USER, ANSWER]}, prompt=told)["prompt"][0][
            "content"
        ]
        == "Be brief."
    )
    assert values(SftStage, tmp_path, {"messages": [own, USER, ANSWER]}, prompt=told)["prompt"] == [
        own,
        USER,
    ]


def test_tools_and_calls_of_tools_are_kept(tmp_path: Path) -> None:
    call = {
        "role": "assistant",
        "tool_calls": [{"type": "function", "function": {"name": "run", "arguments": {}}}],
    }
    result = {"role": "tool", "name": "run", "content": "ok"}
    tools = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
    found = values(SftStage, tmp_path, {"messages": [USER, call, result, ANSWER], "tools": tools})
    assert found["prompt"] == [USER, call, result]
    assert json.loads(found["tools"]) == tools


def test_plain_texts_are_taken_as_they_are(tmp_path: Path) -> None:
    assert values(SftStage, tmp_path, {"text": "let x = 1"}) == {"text": "let x = 1"}


def test_cells_of_a_csv_file_hold_messages_as_json(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    cell = json.dumps([USER, ANSWER]).replace('"', '""')
    file.write_text(f'messages\n"{cell}"\n')
    config = SftStage(model={"name": "m"}, output_dir="x", data=SplitSource(dataset=str(file)))  # type: ignore[arg-type]
    assert load_rows(config).train[0].values == {"prompt": [USER], "completion": [ANSWER]}


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    data = {"columns": {"prompt": "question", "completion": "answer"}, "ignore_columns": ["note"]}
    row = {"question": "q", "answer": "a", "note": 1}
    assert values(SftStage, tmp_path, row, data=data) == {"prompt": "q", "completion": "a"}


# ---------------------------------------------------------------------- preferences


@pytest.mark.parametrize("kind", [DpoStage, RewardStage])
def test_pairs_have_texts_or_messages(kind: type, tmp_path: Path) -> None:
    assert values(kind, tmp_path, {"prompt": "p", "chosen": "a", "rejected": "b"}) == {
        "prompt": "p",
        "chosen": "a",
        "rejected": "b",
    }
    chat = {"prompt": [USER], "chosen": [ANSWER], "rejected": [OTHER]}
    assert values(kind, tmp_path, chat) == chat
    told = PromptConfig(style="chat")
    assert (
        values(
            kind,
            tmp_path,
            {"prompt": "Add 1.", "chosen": "x + 1", "rejected": "x - 1"},
            prompt=told,
        )
        == chat
    )


def test_pairs_without_a_prompt_share_their_beginning(tmp_path: Path) -> None:
    assert values(DpoStage, tmp_path, {"chosen": [USER, ANSWER], "rejected": [USER, OTHER]}) == {
        "prompt": [USER],
        "chosen": [ANSWER],
        "rejected": [OTHER],
    }


def test_the_shared_beginning_of_dialogues_ends_at_the_last_turn_and_not_in_a_word(
    tmp_path: Path,
) -> None:
    asked = "\n\nHuman: Which colour?\n\nAssistant:"
    row = {"chosen": asked + " It is blue.", "rejected": asked + " It is black."}
    assert values(DpoStage, tmp_path, row) == {
        "prompt": asked,
        "chosen": " It is blue.",
        "rejected": " It is black.",
    }
    row = {"chosen": "colour: blue", "rejected": "colour: black"}
    assert values(DpoStage, tmp_path, row) == {
        "prompt": "colour: ",
        "chosen": "blue",
        "rejected": "black",
    }


# ---------------------------------------------------------------------- what is refused

GOOD_ANSWER = {"prompt": "p", "completion": "c"}
GOOD_PAIR = {"prompt": "p", "chosen": "a", "rejected": "b"}


@pytest.mark.parametrize(
    ("kind", "row", "says"),
    [
        (SftStage, {"prompt": "p"}, "completion: is missing or empty"),
        (SftStage, {"prompt": " ", "completion": "c"}, "this one has none of them"),
        (SftStage, {"completion": "c"}, "this one has none of them"),
        (
            SftStage,
            {"prompt": "p", "completion": "c", "solution": "s"},
            "completion: and solution are both given",
        ),
        (SftStage, {"prompt": "p", "completion": "c", "text": "t"}, "this one has text and prompt"),
        (SftStage, {"prompt": "p", "completion": 3}, "completion: is not a text"),
        (SftStage, {"instruction": "i"}, "output: is missing or empty"),
        (SftStage, {"messages": [USER]}, "messages: the last one is user's"),
        (
            SftStage,
            {"messages": [ANSWER]},
            "messages: there is an answer and nothing that was asked",
        ),
        (SftStage, {"messages": "[{]"}, "messages: is not JSON"),
        (SftStage, {"messages": {"role": "user"}}, "messages: is no list of messages"),
        (SftStage, {"messages": [USER, "x"]}, "messages[1]: is no message with role and content"),
        (
            SftStage,
            {"messages": [{"role": "human", "content": "x"}, ANSWER]},
            "messages[0]: role 'human' is not one of",
        ),
        (
            SftStage,
            {"messages": [{"role": "user", "content": ""}, ANSWER]},
            "messages[0]: content: is missing, empty",
        ),
        (
            SftStage,
            {"messages": [{"role": "user", "content": ["x"]}, ANSWER]},
            "content: is missing, empty or not a",
        ),
        (
            SftStage,
            {"messages": [{"role": "user", "text": "x"}, ANSWER]},
            "messages[0]: unknown key text",
        ),
        (
            SftStage,
            {"prompt": [USER, ANSWER], "completion": "c"},
            "prompt: ends with the assistant's words",
        ),
        (SftStage, {**GOOD_ANSWER, "tools": "{"}, "tools: is not JSON"),
        (SftStage, {**GOOD_ANSWER, "tools": {"a": 1}}, "tools: is no list of tools"),
        (SftStage, {**GOOD_ANSWER, "promt": "x"}, "unknown columns: promt; did you mean prompt?"),
        (SftStage, '{"prompt": "p", "completion": NaN}', "NaN is not a finite number"),
        (
            SftStage,
            '{"prompt": "p", "prompt": "q", "completion": "c"}',
            "the key 'prompt' occurs twice",
        ),
        (SftStage, '{"prompt": "p", "completion": "\\ud800"}', "half a surrogate pair"),
        (SftStage, '{"prompt": "p", "completion": ', "is not JSON"),
        (SftStage, "[1]", "is list, not a record"),
        (DpoStage, {"prompt": "p", "chosen": "a"}, "rejected: is missing or empty"),
        (DpoStage, {"prompt": "p", "chosen": "a", "rejected": ""}, "rejected: is missing or empty"),
        (
            DpoStage,
            {"prompt": "p", "chosen": "a", "rejected": "a"},
            "chosen and rejected are the same",
        ),
        (
            DpoStage,
            {"prompt": "p", "chosen": "a", "rejected": [OTHER]},
            "one is a text and the other is messages",
        ),
        (
            DpoStage,
            {"chosen": "a", "rejected": "b"},
            "prompt: is missing, and chosen and rejected do not begin alike",
        ),
        (
            DpoStage,
            {"chosen": [USER, ANSWER], "rejected": [USER]},
            "do not begin alike and end differently",
        ),
        (
            RewardStage,
            {"prompt": "p", "chosen": "a", "rejected": None},
            "rejected: is missing or empty",
        ),
        (RewardStage, {**GOOD_PAIR, "margn": 1}, "unknown columns: margn"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_with_file_and_line(
    kind: type, row: Any, says: str, tmp_path: Path
) -> None:
    good = GOOD_ANSWER if kind is SftStage else GOOD_PAIR
    with pytest.raises(Misuse, match=re.escape(says)) as caught:
        rows_of(kind, tmp_path, [good, row])
    assert f"{tmp_path / 'rows.jsonl'}:2: " in str(caught.value)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"rows.jsonl: holds no rows"):
        rows_of(SftStage, tmp_path, [])


def test_rows_of_two_forms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        Misuse,
        match=r":2: is of another form than .*:1: prompts as messages there, prompts as text",
    ):
        rows_of(SftStage, tmp_path, [GOOD_ANSWER, {"messages": [USER, ANSWER]}])


# ------------------------------------------------------------------------------------------ splits


def test_rows_with_one_prompt_stay_on_one_side_and_the_seed_draws(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n % 20}", "completion": f"c{n}"} for n in range(60)]
    drawn = [
        rows_of(SftStage, tmp_path, rows, data={"held_out": 0.25}, seed=seed) for seed in (1, 1, 2)
    ]
    prompts = []
    for split in drawn:
        held_out = {sample.values["prompt"] for sample in split.held_out}
        assert len(held_out) == 5
        assert held_out.isdisjoint(sample.values["prompt"] for sample in split.train)
        assert len(split.train) + len(split.held_out) == 60
        prompts.append(held_out)
    assert prompts[0] == prompts[1] != prompts[2]


def test_rows_that_are_measured_on_may_not_be_trained_on(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(GOOD_PAIR) + "\n")
    with pytest.raises(Misuse, match=r"other.jsonl:1: is also at .*rows.jsonl:1"):
        rows_of(DpoStage, tmp_path, [GOOD_PAIR], data={"eval_dataset": str(other)})


def test_a_share_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"held_out 0.9 leaves no row to train on"):
        rows_of(SftStage, tmp_path, [GOOD_ANSWER], data={"held_out": 0.9})


def test_a_share_that_holds_nothing_out_is_refused(tmp_path: Path) -> None:
    """The share is of prompts, not of rows, and the message has both numbers."""
    rows = [GOOD_ANSWER, GOOD_ANSWER | {"completion": "Another answer."}]
    with pytest.raises(
        Misuse, match=r"data.held_out 0.1 of 1 prompts \(2 rows\) .*set a greater share, or 0 to"
    ):
        rows_of(SftStage, tmp_path, rows, data={"held_out": 0.1})
