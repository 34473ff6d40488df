"""Calls of tools: what is well formed in three notations, the figures of turns made by hand, and
whole measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_openai_server import Json, OpenAiLike, Reply, refused
from report_runs import verdict

from corpus.trajectories import Step, Trajectory
from corpus.trajectory_formats import TOOLS, build_chat_row
from gradus.errors import Misuse
from gradus.tasks.ocaml import OcamlTask
from trainer.evaluate.openai_client import Server
from trainer.evaluate.plan import EvalPlan
from trainer.evaluate.setup import SamplingOptions
from trainer.evaluate.tool_call_eval import Calls, compute_calls, main, read_cut_points
from trainer.evaluate.tool_calls import Call, build_schemas, extract_calls
from trainer.rewards.judge import Record

WELL = '<tool_call>\n{"name": "check", "arguments": {"code": "let f = 1"}}\n</tool_call>'
HARMONY = (
    '<|channel|>commentary to=functions.check <|constrain|>json<|message|>{"code": "let f ='
    ' 1"}<|call|>'
)
SCHEMAS = build_schemas(TOOLS)
DEEP = '{"name": "check", "arguments": {"code": ' + "[" * 100_000
TRAJECTORY = Trajectory(
    "t",
    "OCaml",
    "Write f.",
    (
        Step("First.", "let f = 0", verdict(0.0), "0 of 1 tests pass"),
        Step("Then.", "let f = 1", verdict(1.0, passed=True), "all 1 tests pass"),
    ),
    "Done.",
    "```ocaml\nlet f = 1\n```",
    OcamlTask(tests="let () = assert (f = 1)"),
)


# ---------------------------------------------------------------------- well formed


@pytest.mark.parametrize(
    "text",
    [
        WELL,
        f"I check it.\n{WELL}",
        f"<think>\n<tool_call>{{\n</think>\n{WELL}",
        HARMONY,
        f"<|channel|>analysis<|message|>First.<|end|><|start|>assistant{HARMONY}",
        HARMONY.removesuffix("<|call|>"),
        (
            '<|start|>assistant to=functions.check<|channel|>commentary json<|message|>{"code":'
            ' "x"}<|call|>'
        ),
    ],
)
def test_a_call_that_fits_its_tool_is_well_formed(text: str) -> None:
    assert extract_calls(text, None, SCHEMAS) == [Call("check", None)]


def test_a_call_that_a_server_took_out_is_held_to_the_same() -> None:
    given = [
        {"name": "check", "arguments": '{"code": "x"}'},
        {"name": "check", "arguments": '{"code": 7}'},
    ]
    assert extract_calls("", given, SCHEMAS) == [Call("check", None), Call("check", "arguments")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<tool_call>" + '{"name": "check"', "no end"),
        ("<tool_call></tool_call>", "not JSON"),
        ("<tool_call>{'name': 'check'}</tool_call>", "not JSON"),
        ("<tool_call>[]</tool_call>", "no name and arguments"),
        ("<tool_call>7</tool_call>", "no name and arguments"),
        ('<tool_call>{"arguments": {"code": "x"}}</tool_call>', "no name and arguments"),
        ('<tool_call>{"name": 7, "arguments": {"code": "x"}}</tool_call>', "no name and arguments"),
        (
            '<tool_call>{"name": "check", "parameters": {"code": "x"}}</tool_call>',
            "no name and arguments",
        ),
        ('<tool_call>{"name": "run", "arguments": {"code": "x"}}</tool_call>', "unknown tool"),
        ('<tool_call>{"name": "check"}</tool_call>', "arguments"),
        ('<tool_call>{"name": "check", "arguments": {}}</tool_call>', "arguments"),
        ('<tool_call>{"name": "check", "arguments": {"code": 7}}</tool_call>', "arguments"),
        ('<tool_call>{"name": "check", "arguments": "{}"}</tool_call>', "arguments"),
        ('<tool_call>{"name": "check", "arguments": {"code": NaN}}</tool_call>', "not JSON"),
        ('<tool_call>{"name": "check", "arguments": {"code": 1e999}}</tool_call>', "not JSON"),
        (
            '<tool_call>{"name": "check", "arguments": {"code": "a", "code": "b"}}</tool_call>',
            "not JSON",
        ),
        (
            '<tool_call>{"name": "check", "name": "check", "arguments": {"code": "a"}}</tool_call>',
            "not JSON",
        ),
        (f"<tool_call>{DEEP}</tool_call>", "not JSON"),
        (
            f'<tool_call>{{"name": "check", "arguments": {{"code": {"9" * 5000}}}}}</tool_call>',
            "not JSON",
        ),
        (
            (
                '<tool_call>{"name": "check", "arguments": {"code":'
                f' "{"x" * 1_000_000}"}}}}</tool_call>'
            ),
            "too long",
        ),
        (HARMONY.replace("functions.check", "browser.open"), "header"),
        (HARMONY.replace("commentary", "analysis"), "header"),
        (HARMONY.replace("functions.check", "functions.run"), "unknown tool"),
        (HARMONY.replace('"code"', "code"), "not JSON"),
        (HARMONY.replace('"let f = 1"', "NaN"), "not JSON"),
        ("<|channel|>commentary to=functions.check", "header"),
    ],
)
def test_a_malformed_call_is_told_by_what_is_wrong_with_it(text: str, problem: str) -> None:
    assert [call.problem for call in extract_calls(text, None, SCHEMAS)] == [problem]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": None, "arguments": "{}"},
        {"name": "check", "arguments": None},
        {"name": "check", "arguments": "{"},
        {"name": "check", "arguments": "[" * 100_000},
        {"name": "check", "arguments": '{"code": Infinity}'},
    ],
)
def test_a_malformed_call_of_a_server_is_malformed(given: Json) -> None:
    (found,) = extract_calls("", [given], SCHEMAS)
    assert found.problem


@pytest.mark.parametrize(
    "text", ["", "let f = 1", "```ocaml\nlet f = 1\n```", "send it to=me", '{"name": "check"}']
)
def test_what_calls_nothing_has_no_calls(text: str) -> None:
    assert extract_calls(text, None, SCHEMAS) == []


def test_calls_without_end_are_bounded() -> None:
    assert len(extract_calls("<tool_call>" * 100_000, None, SCHEMAS)) == 64
    assert (
        len(extract_calls(HARMONY.replace("<|call|>", "<|start|>") * 10_000, None, SCHEMAS)) == 64
    )


# ----------------------------------------------------------------------------------------- schemas


def told(schema: Any, value: Any) -> str | None:
    """What is wrong with a call of a tool with that schema."""
    tools = build_schemas([{"function": {"name": "f", "parameters": schema}}])
    (found,) = extract_calls("", [{"name": "f", "arguments": json.dumps(value)}], tools)
    return found.problem


@pytest.mark.parametrize(
    ("schema", "value", "good"),
    [
        ({}, {"a": 1}, True),
        ({"type": "object", "additionalProperties": False}, {"a": 1}, False),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": 1}, False),
        ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": None}, True),
        ({"properties": {"a": {"type": "integer"}}}, {"a": True}, False),
        ({"properties": {"a": {"type": "integer"}}}, {"a": 2.0}, True),
        ({"properties": {"a": {"type": "number"}}}, {"a": 2}, True),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": "z"}, False),
        ({"properties": {"a": {"const": "x"}}}, {"a": "x"}, True),
        (
            {"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
            {"a": ["x", 7]},
            False,
        ),
        ({"properties": {"a": {"type": "string"}}}, {"a": "\ud800 half"}, True),
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 50 + "b"}, False),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, {"minimum": 3}]}}}, {"a": 2}, False),
        (
            {"$defs": {"n": {"type": "null"}}, "properties": {"a": {"$ref": "#/$defs/n"}}},
            {"a": None},
            True,
        ),
    ],
)
def test_arguments_fit_a_schema_or_do_not(schema: Json, value: Json, good: bool) -> None:
    assert told(schema, value) == (None if good else "arguments")


@pytest.mark.parametrize(
    "schema",
    [
        7,
        {"anyOf": []},
        {"$ref": "http://127.0.0.1/x"},
        {"type": "text"},
        {"pattern": "("},
        {"properties": []},
    ]
    + [
        {"required": "a"},
        {"required": [[]]},
        {"items": 7},
        {"properties": {"a": {"oneOf": []}}},
        {"type": [["string"]]},
    ],
)
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match="f: is no JSON schema"):
        told(schema, {})


def test_arguments_deep_within_each_other_are_read_or_refused() -> None:
    schema: Json = {}
    for _ in range(500):
        schema = {"properties": {"a": schema}}
    with pytest.raises(ValueError, match="Recursion limit"):
        told(schema, {"a": 1})
    tools = build_schemas([{"name": "f"}])
    for depth in (500, 5_000, 100_000):
        (found,) = extract_calls(
            "", [{"name": "f", "arguments": '{"a":' * depth + "1" + "}" * depth}], tools
        )
        assert found.problem in (None, "not JSON")


# ----------------------------------------------------------------------------------------- figures


def written(rows: list[Json], path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def chats(tmp_path: Path, count: int = 2) -> Path:
    return written(
        [build_chat_row(TRAJECTORY) | {"id": f"t{n}"} for n in range(count)],
        tmp_path / "chats.jsonl",
    )


def figures(tmp_path: Path, *completions: str | None) -> Calls:
    points = list(read_cut_points(chats(tmp_path), None, served=False))
    lost: Json = {
        "status": "generation_error",
        "completion": "",
        "error": {"kind": "timeout", "message": "late"},
    }
    records: list[Record] = [
        lost if text is None else {"status": "written", "completion": text} for text in completions
    ]
    given: Json = {
        "model": "m",
        "asked_as": "chat",
        "served": True,
        "tasks": "d",
        "tasks_sha256": "x",
        "samples": 0,
    }
    plan = EvalPlan.model_validate(
        given | {"temperature": 0.0, "greedy": True, "max_new_tokens": 8}
    )
    return compute_calls(records, points, plan, 1.0)


def test_the_figures_of_hand_made_turns_are_exactly_these(tmp_path: Path) -> None:
    unknown = WELL.replace("check", "run")
    # Two trajectories; of each the first two turns call the tool and the third answers.
    found = figures(tmp_path, WELL, unknown, "Done.", WELL + WELL, None, WELL)
    assert (found.trajectories, found.turns, found.unwritten, found.calls) == (
        2,
        5,
        {"timeout": 1},
        5,
    )
    assert found.format is not None
    assert found.selection is not None
    assert found.format.value == pytest.approx(4 / 5)
    assert found.malformed == {"unknown tool": 1}
    assert found.selection.value == pytest.approx(3 / 5)


def test_a_model_that_calls_nothing_has_no_share_of_well_formed_calls(tmp_path: Path) -> None:
    found = figures(tmp_path, *["I will not."] * 6)
    assert (found.format, found.calls) == (None, 0)
    assert found.selection is not None
    assert found.selection.value == pytest.approx(2 / 6)
    nothing = figures(tmp_path, *[None] * 6)
    assert (nothing.selection, nothing.unwritten) == (None, {"timeout": 6})


# ---------------------------------------------------------------------- whole measurements


def said_with_calls(body: Json) -> Reply:
    """The call that is due, as servers take it out of the text; in the last turn an answer."""
    if sum(turn["role"] == "tool" for turn in body["messages"]) == 2:
        message: Json = {"role": "assistant", "content": "```ocaml\nlet f = 1\n```"}
    else:
        call = {
            "id": "c",
            "type": "function",
            "function": {"name": "check", "arguments": '{"code": "let f = 1"}'},
        }
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return Reply(json.dumps({"choices": [choice], "usage": {}}).encode())


def measured(answer: Any, data: Path, out: Path, **changed: Any) -> tuple[int, Calls, list[Json]]:
    with OpenAiLike(answer).serving() as like:
        server = Server(like.url, attempts=2, concurrency=4)
        given: Json = {"model": None, "server": server, "temperature": 0.0, "max_new_tokens": 64}
        status = main(SamplingOptions(**{**given, **changed}), data, out)
        return (
            status,
            Calls.model_validate_json((out / "calls.json").read_text()),
            [body for _, body, _ in like.requests],
        )


def test_a_server_that_calls_what_is_due_has_all_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = lambda text, body, before: said_with_calls(body)  # noqa: E731
    status, found, asked = measured(answer, chats(tmp_path), tmp_path / "out")
    assert status == 0
    assert found.format is not None
    assert found.selection is not None
    assert (found.calls, found.format.value, found.selection.value, found.turns) == (4, 1.0, 1.0, 6)
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "calls.json")
    assert all(body["tools"] == TOOLS for body in asked)
    earlier = next(turn for body in asked for turn in body["messages"] if turn.get("tool_calls"))
    assert earlier["tool_calls"][0]["function"]["arguments"] == '{"code": "let f = 0"}', (
        "as servers take them"
    )


def test_the_same_command_goes_on_where_a_server_failed(tmp_path: Path) -> None:
    failing = lambda text, body, before: (  # noqa: E731
        refused(503) if len(body["messages"]) == 2 else said_with_calls(body)
    )  # noqa: E731
    data = chats(tmp_path)
    out = tmp_path / "out"
    status, found, _ = measured(failing, data, out)
    assert (status, found.unwritten, found.turns) == (3, {"server": 2}, 4)
    status, found, asked = measured(lambda text, body, before: said_with_calls(body), data, out)
    assert (status, found.turns, len(asked)) == (0, 6, 2)


@pytest.mark.parametrize(
    "calls",
    [
        7,
        "x",
        [7],
        [{}],
        [{"function": {"name": 7}}],
        [{"function": {"name": "check", "arguments": {"code": "x"}}}],
    ]
    + [[{"function": {"name": "check", "arguments": "[" * 100_000}}]],
)
def test_a_server_that_answers_nonsense_has_malformed_calls_or_none(
    tmp_path: Path, calls: Any
) -> None:
    choice = {
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": "x", "tool_calls": calls},
    }
    reply = Reply(json.dumps({"choices": [choice]}).encode())
    status, found, _ = measured(lambda *_: reply, chats(tmp_path, 1), tmp_path / "out")
    assert status == 0
    assert sum(found.malformed.values()) == found.calls == (3 if isinstance(calls, list) else 0)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "holds no rows"),
        ([{"id": "a"}], "role and content"),
        ([build_chat_row(TRAJECTORY) | {"tools": []}], "no list of tools"),
        ([build_chat_row(TRAJECTORY) | {"tools": "["}], "tools"),
        ([build_chat_row(TRAJECTORY) | {"tools": [{"function": {}}]}], "without a name"),
        ([build_chat_row(TRAJECTORY) | {"tools": TOOLS * 2}], "name of its own"),
        ([build_chat_row(TRAJECTORY) | {"messages": []}], "no turn"),
        ([build_chat_row(TRAJECTORY) | {"messages": [{"role": "user"}]}], "role and content"),
        (
            [
                build_chat_row(TRAJECTORY)
                | {"messages": [{"role": "user", "content": "x", "tool_calls": [7]}]}
            ],
            "role and content",
        ),
    ],
)
def test_rows_that_are_no_trajectories_are_refused_by_name(
    tmp_path: Path, rows: list[Json], why: str
) -> None:
    data = written(rows, tmp_path / "rows.jsonl")
    with pytest.raises(Misuse, match=why):
        list(read_cut_points(data, None, served=True))


@pytest.mark.training
def test_a_model_here_is_told_its_tools_and_its_signs_are_kept(tmp_path: Path) -> None:
    from trainer.config.run import FreshModel
    from trainer.data.prompts import encode_prompt
    from trainer.evaluate.local import draw
    from trainer.evaluate.setup import load
    from trainer.models.fresh import make_fresh_model

    folder = tmp_path / "model"
    sizes = FreshModel(
        hidden_size=32,
        intermediate_size=64,
        layers=1,
        heads=2,
        kv_heads=1,
        head_dim=16,
        max_length=900,
    )
    make_fresh_model("qwen3", sizes, ["let f x = x + 1"], folder, seed=1)
    model, tokenizer = load(str(folder), None)
    tokenizer.chat_template = (
        "{{ tools | tojson if tools else '' }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    tokenizer.save_pretrained(folder)
    bare, told = (
        encode_prompt(tokenizer, [{"role": "user", "content": "x"}], tools)
        for tools in (None, TOOLS)
    )
    assert len(told) > len(bare)
    kept = draw(model, tokenizer, ["let f", "let"], 0.0, 8, keep_special=True)
    plain = draw(model, tokenizer, ["let f", "let"], 0.0, 8)
    freely = draw(model, tokenizer, ["let f"], 0.0, 80)
    model.generation_config.repetition_penalty = (
        50.0  # some models bring such a setting of their own
    )
    assert draw(model, tokenizer, ["let f"], 0.0, 80) == freely
    pad = tokenizer.pad_token or "<none>"
    assert all(one.text.count(pad) <= 1 for one in kept), "padding is no text"
    assert all(len(one.text) >= len(other.text) for one, other in zip(kept, plain, strict=True))
    status = main(
        SamplingOptions(model=str(folder), temperature=0.0, max_new_tokens=4, limit=1),
        chats(tmp_path),
        tmp_path / "out",
    )
    found = Calls.model_validate_json((tmp_path / "out/calls.json").read_text())
    assert (status, found.trajectories, found.turns) == (0, 1, 3)
