"""What tenants send costs work in proportion to it, at each entrance: bodies of the core, adapters
and operators, frames of WebSockets, files of the command line, and what programs print.

Answers of models are read in test_extract, test_degenerate, test_rust_text and test_story_parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import build_faulted
from gradus.descriptions import describe_offline
from gradus.errors import FaultKind, Misuse
from gradus.integrations.core import Completion
from gradus.json_tokens import count_tokens
from gradus.row_reader import read_rows
from services.api.adapters import ADAPTERS, nemo_gym, openenv, openrlhf, sandbox_fusion, slime
from services.api.adapters.grading import _pack_request
from services.api.adapters.task_files import TaskFiles
from services.api.json_object import JsonObject, parse_object
from services.api.parse import parse_model
from services.api.problems import MAX_ERRORS
from services.api.queues import Cancelling
from services.api.validate import KnownGrader
from services.graders.program.checkers import CHECKERS, is_equal_json, read_value
from services.graders.rust.glob_imports import may_call_macros
from services.graders.story.parser import read as read_stories
from tests.growth import check_growth
from trainer.evaluate.tool_calls import build_schemas, extract_calls

BYTES = 100_000
FAULT = build_faulted("0", FaultKind.QUEUE, "x", retryable=True)
OCAML = KnownGrader(describe_offline("ocaml"))
PROGRAM = KnownGrader(describe_offline("program"))
Read = Callable[[bytes], object]


def read_adapter(
    find: Callable[[JsonObject], Iterable[Completion]], grader: KnownGrader = OCAML
) -> Read:
    def read(data: bytes) -> None:
        _pack_request(grader, partial(find, parse_object(data)), TaskFiles(()), 10)

    return read


def read_file(suffix: str, folder: Path, data: bytes) -> None:
    file = folder / f"rows{suffix}"
    file.write_bytes(data)
    for row in read_rows(file):
        assert len(row.problem or "") < 1000


ENTRANCES: dict[str, tuple[Read, str]] = {
    "core": (OCAML.parse_request, '{"submissions": [%s]}'),
    "a task": (
        OCAML.parse_request,
        '{"submissions": [{"id": "a", "completion": "x", "task": {"packages": [%s]}}]}',
    ),
    "slime": (read_adapter(slime._iter_completion), '{"response": "x", "label": {"a": [%s]}}'),
    "openrlhf": (
        read_adapter(openrlhf._iter_completions),
        '{"query": [%s], "prompts": [%s], "labels": [%s]}',
    ),
    "nemo_gym": (read_adapter(nemo_gym._iter_completion), '{"response": {"output": [%s]}}'),
    "nemo_gym's answer": (
        lambda data: nemo_gym._encode_answer(parse_object(data), FAULT),
        '{"instance_config": {"a": [%s]}, "b": [%s]}',
    ),
    "nemo_gym's metrics": (
        lambda data: nemo_gym._aggregate(parse_object(data)),
        '{"verify_responses": [%s]}',
    ),
    "sandbox_fusion": (
        read_adapter(partial(sandbox_fusion._iter_submission, is_program=True), PROGRAM),
        '{"completion": "x", "config": {"language": "c", "provided_data": {"test": [%s]}}}',
    ),
    "sandbox_fusion's programs": (
        read_adapter(partial(sandbox_fusion._iter_program, language="c"), PROGRAM),
        '{"language": "c", "code": "x", "files": [%s]}',
    ),
    "openenv": (openenv._parse_frame, '{"type": "reset", "data": {"task": [%s]}}'),
    "operators": (partial(parse_model, Cancelling), '{"jobs": [%s]}'),
    "tokens": (count_tokens, '{"a": [%s]}'),
    ".jsonl": (partial(read_file, ".jsonl"), '{"a": [%s]}'),
    ".json": (partial(read_file, ".json"), '[{"a": [%s]}]'),
    ".csv": (partial(read_file, ".csv"), "a,b\n%s"),
}
PIECES = (
    *("[],", '{"a": 1},', '"x",', "1.5,", "1", " ", "\n", "[", "{", '{"":', '"', ",", "]", "}"),
    *('"\\', '"\\"', "NaN,", "\\ud800", '"\ud800",', "\0", "\r\n", '{"a": [{"b": "]"}]},'),
)


def test_every_adapter_is_an_entrance() -> None:
    known = " ".join(ENTRANCES)
    for name in ADAPTERS:
        assert name in known


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("piece", PIECES)
def test_a_body_costs_as_its_length_and_messages_are_short(
    entrance: str, piece: str, tmp_path: Path
) -> None:
    read, form = ENTRANCES[entrance]
    if entrance.startswith("."):
        read = partial(read, tmp_path)  # type: ignore[arg-type]

    def prepare(size: int) -> Callable[[], None]:
        repeated = piece * (size // len(piece) // form.count("%s"))
        text = form.replace("%s", repeated.rstrip(","))
        return partial(read_briefly, text.encode(errors="surrogatepass"))

    def read_briefly(data: bytes) -> None:
        message = ""
        try:
            read(data)
        except (Misuse, ValueError) as error:
            message = str(error)
        assert len(message) < MAX_ERRORS * 200

    check_growth(prepare, BYTES)


@pytest.mark.parametrize("digits", ["1" * 2_000_000 + "e999", "1" * 2_000_000 + ".0"])
def test_a_number_without_end_is_not_repeated(digits: str, tmp_path: Path) -> None:
    data = f'{{"response": {digits}}}'.encode()
    with pytest.raises(Misuse) as refusal:
        parse_object(data)
    assert len(str(refusal.value)) < 200
    read_file(".jsonl", tmp_path, data)


# ------------------------------------------------------------------------- what programs print

PRINTED = ("1", ".", "1.", "-", " ", "1 ", "\n", "1\n", "e1", "1e", "\t\n", "a")


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("piece", PRINTED)
def test_an_output_costs_as_its_length(checker: str, piece: str) -> None:
    def prepare(size: int) -> Callable[[], object]:
        printed = piece * (size // len(piece))
        return lambda: CHECKERS[checker](printed + "x", printed + ".0", 1e-6)

    check_growth(prepare, BYTES)


@pytest.mark.parametrize("piece", ["[],", "1,", '"",', "{},", '{"a":1},', "1", "["])
def test_a_returned_value_costs_as_its_length(piece: str) -> None:
    def compare(report: bytes) -> None:
        _, value = read_value(report)
        is_equal_json(value, value, 1e-6)

    def prepare(size: int) -> Callable[[], object]:
        return partial(compare, f"[{(piece * (size // len(piece))).rstrip(',')}]".encode())

    check_growth(prepare, BYTES)


# ------------------------------------------------------------- tests of a task, calls and stories


@pytest.mark.parametrize("piece", ["_", "a", "a!", "a::", "use a::*;", "b ! ", "é"])
def test_tests_in_rust_cost_as_their_length(piece: str) -> None:
    def prepare(size: int) -> Callable[[], object]:
        tests = f"{piece * (size // len(piece))}\n#[test] fn a() {{}}"
        return lambda: may_call_macros.__wrapped__(tests, "solution", "2021")

    check_growth(prepare, BYTES)


CALLS = ("<tool_call>", "</tool_call>", "<tool_call>{}</tool_call>", "<|channel|>", "{", '{"a":')


@pytest.mark.parametrize("piece", [*CALLS, "<|call|>", "commentary to=", "\n", " "])
def test_calls_of_tools_cost_as_their_length(piece: str) -> None:
    tools = build_schemas([{"name": "a"}])

    def prepare(size: int) -> Callable[[], Any]:
        text = piece * (size // len(piece))
        return lambda: extract_calls(text, None, tools)

    check_growth(prepare, BYTES)


@pytest.mark.parametrize("filler", [".", "…", "(", "()", "_.", "-"])
def test_a_clause_without_words_costs_as_its_length(filler: str) -> None:
    """One wish of 400 dots took 0.3 s, and a text holds 70 of them."""

    def prepare(size: int) -> Callable[[], object]:
        story = f"As a user, I want ?{filler * (size // len(filler))}?x\n"
        return partial(read_stories, story * 8, 32_000, 256)

    check_growth(prepare, 480)
