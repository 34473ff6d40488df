"""A JSON text is read value by value as a parser reads the whole, and a request of it becomes the
same jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradus import json_tokens
from gradus.contract import RawSubmission, compute_job_id
from gradus.errors import Misuse, TooLarge
from gradus.strict_json import parse_strict_json
from services.api import json_object, parse
from services.api.json_cursor import JsonCursor
from services.api.json_object import ITEMS_AT_ONCE, JsonObject, parse_object
from services.api.packed import pack_submission
from services.api.problems import Refused
from services.broker.jobs import JobTerms, parse_payload

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["\\", '"', '\\"', "]"])
SCALARS = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=60,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=6)


def get_values(found: JsonObject) -> dict[str, Any]:
    return {name: found.get(name) for name in found.members}


@given(OBJECTS, st.sampled_from([None, 1]), st.booleans(), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_an_object_is_read_as_a_parser_reads_it(
    value: dict[str, Any], indent: int | None, is_ascii: bool, chunk_bytes: int
) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_tokens, "CHUNK_BYTES", chunk_bytes)
        found = parse_object(b" \n" + data + b"\t")
        assert get_values(found) == value
        assert json.loads(found.encode()) == value


@given(OBJECTS, st.data())
@settings(max_examples=60, deadline=None)
def test_a_broken_object_is_refused_as_a_parser_refuses_it(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value)
    place = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(["", ",", "[", "]", "{", "}", '"', ":", "\\", "1"]))
    broken = text[:place] + put + text[place + 1 :]
    try:
        expected = parse_strict_json(broken)
    except ValueError:
        expected = None
    if isinstance(expected, dict):
        assert get_values(parse_object(broken.encode())) == expected
    else:
        with pytest.raises(Misuse):
            parse_object(broken.encode())


@pytest.mark.parametrize("list_text", ["[,]", "[1,]", "[,1]", "[" + "1," * ITEMS_AT_ONCE + "]"])
def test_a_comma_without_an_item_is_refused(list_text: str) -> None:
    with pytest.raises(Refused, match="not JSON"):
        parse_object(f'{{"a": {list_text}}}'.encode())


@pytest.mark.parametrize("item", ["[]", '"x"', '{"a": "1"}', "1"])
def test_no_parser_gets_more_than_a_few_items_at_once(
    monkeypatch: pytest.MonkeyPatch, item: str
) -> None:
    sizes = []

    def parse_and_note(text: str) -> Any:
        sizes.append(len(text))
        return json.loads(text)

    monkeypatch.setattr(json_object, "parse_strict_json", parse_and_note)
    items = ",".join([item] * 10_000)
    document = parse_object(f'{{"a": [{items}]}}'.encode())
    assert len(list(document.iter_list("a"))) == 10_000
    assert max(sizes) <= ITEMS_AT_ONCE * (len(item) + 1) + 2


def test_one_value_of_too_many_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "MAX_VALUE_TOKENS", 100)
    assert parse_object(b'{"a": [%b]}' % b",".join([b"[1, 2]"] * 1000))
    with pytest.raises(TooLarge):
        parse_object(b'{"a": {"b": [%b]}}' % b",".join([b"[]"] * 100))


def test_texts_of_a_list_follow_one_another() -> None:
    cursor = JsonCursor(b' {"a" : [ {"b": "],"} , 2,[[3]]] , "c":{} } ')
    members = cursor.iter_members()
    assert next(members) == b'"a"'
    assert [item.strip() for item in cursor.iter_items()] == [b'{"b": "],"}', b"2", b"[[3]]"]
    assert next(members) == b'"c"'
    assert cursor.read_value().strip() == b"{}"
    assert not list(members)
    cursor.close()


TASKS = st.dictionaries(TEXTS, VALUES | st.floats(allow_nan=False, allow_infinity=False))


@given(st.booleans(), TASKS, TEXTS, TEXTS)
@settings(max_examples=60, deadline=None)
def test_a_packed_submission_is_the_same_job(
    reads_prompt: bool, task: dict[str, Any], completion: str, prompt: str
) -> None:
    submission = RawSubmission(
        id="a", task=task, completion=completion.replace("\0", ""), prompt=prompt.replace("\0", "")
    )
    packed = pack_submission(submission)
    terms = JobTerms(rubric="ocaml/graduated@1", grader="ocaml@1", deadline=1.5)
    job_id = packed.compute_job_id(terms.grader, terms.rubric, reads_prompt=reads_prompt)
    assert job_id == compute_job_id(
        terms.grader, terms.rubric, submission, reads_prompt=reads_prompt
    )
    payload = parse_payload(terms.encode_payload(packed.encode()))
    assert payload.submission == submission
    assert (payload.rubric, payload.grader, payload.deadline) == (
        terms.rubric,
        terms.grader,
        terms.deadline,
    )
