"""Frames: what people and models put around stories. HTML, fences, answer tags, JSON, tables and
paragraphs become one story, or one clause of a story, a line. Nothing here is charged for. Pure,
linear in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Quantifiers are bounded, or stop at the end of the text: no text makes these patterns slow.
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.IGNORECASE | re.DOTALL)
_REASONING = re.compile(
    r"<(reasoning|analysis|scratchpad)>.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL
)
_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
_LINK = re.compile(r"\[([^\[\]\n]{1,200})\]\([^()\n]{1,300}\)")
_CELL = re.compile(r"</?t[dh]\b[^<>\n]{0,300}>", re.IGNORECASE)
_BLOCK = re.compile(
    r"</?(?:li|ul|ol|p|br|div|h[1-6]|tr|table|section|story|stories)\b[^<>\n]{0,300}>",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?[a-z][^<>\n]{0,300}>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]{0,8}(?:```|~~~)[^\n]{0,40}$", re.MULTILINE)

_JSON_START = re.compile(r"^[ \t]{0,40}(?=[\[{])", re.MULTILINE)
_LAST_COMMA = re.compile(r",(\s*[\]}])")
_FAILED_DECODES = 20
"""Lines that begin like JSON and are none, from which on no further one is tried."""
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z]+")
_FIELDS = {
    "role": re.compile(
        r"as(?: an?\b.*| the\b.*)?|.*\b(?:role|persona|actor|who)\b.*|user(?: type)?|stakeholder"
    ),
    "want": re.compile(
        r"i (?:want|need)\b.*|.*\b(?:want|goal|action|need|what|feature|capability)\b.*"
    ),
    "benefit": re.compile(
        r"so(?: that)?\b.*|.*\b(?:benefit|why|reason|value|outcome|purpose|so that)\b.*"
    ),
}
_OPENINGS = {
    "role": re.compile(r"^as (?:an?|the)\s", re.IGNORECASE),
    "want": re.compile(r"^(?:i|we) (?:want|need|would like)\b", re.IGNORECASE),
    "benefit": re.compile(r"^(?:so that|in order (?:to|that))\b", re.IGNORECASE),
}
_WISH = (
    r"(?:i|we)\b[*_]{0,3}(?:'d|\s{1,3}[*_]{0,3}(?:also |really )?"
    r"(?:want|need|would|wish|can|could|should|must|have|am|do|don't)\b)"
)
_STORY = re.compile(rf"^\W{{0,5}}as\b[^\n]{{1,200}}?\b{_WISH}", re.IGNORECASE)
_RULE_ROW = re.compile(r"[\s|:=+-]{3,}")
_NEXT_STORY = re.compile(
    r"(?<=[.!?;])\s{1,8}(?:[-*•]\s|\(?\d{1,3}[.):]\s)?"
    rf"(?=[*_]{{0,3}}as\b[*_]{{0,3}}[^.,;:!?]{{1,80}},?\s{{1,3}}[*_]{{0,3}}{_WISH})",
    re.IGNORECASE,
)


def extract_comments(text: str) -> str:
    """Return what stands in the HTML comments of `text`, one a line."""
    return "\n".join(_COMMENT.findall(text)) if "<!--" in text else ""


def remove_frames(text: str) -> str:
    """`text` without frames: stories on lines of their own, in their order; a story from JSON or a
    table as one line.

    What is recognised as no frame stays as it is.
    """
    if "<" in text:
        answers = _ANSWER.findall(text)
        text = answers[-1] if answers else _REASONING.sub("\n", text)
        text = remove_tags(_BLOCK.sub("\n", _CELL.sub("|", _COMMENT.sub(" ", text))))
    elif "[" in text:
        text = remove_tags(text)
    if "```" in text or "~~~" in text:
        text = _FENCE.sub("", text)
    if "{" in text or "[" in text:
        text = "\n".join(_replace_json(text))
    if "|" in text:
        text = "\n".join(_replace_tables(text.split("\n")))
    return _NEXT_STORY.sub("\n", text)


def remove_tags(text: str) -> str:
    """`text` without tags, and with the words of its links."""
    return _LINK.sub(r"\1", _TAG.sub(" ", _COMMENT.sub(" ", text)))


def _replace_json(text: str) -> Iterator[str]:
    """Yield the parts of `text` in order, JSON values that hold stories replaced by these."""
    done = failed = 0
    decoder = json.JSONDecoder()
    lenient = _LAST_COMMA.sub(r"\1", text)
    for start in _JSON_START.finditer(lenient):
        if start.end() < done:
            continue
        try:
            value, end = decoder.raw_decode(lenient, start.end())
        except (ValueError, RecursionError):
            failed += 1
            if failed == _FAILED_DECODES:
                break
            continue
        if stories := list(_iter_stories(value, every_text=True)):
            yield lenient[done : start.start()]
            yield from stories
            done = end + (lenient[end : end + 1] == ",")
    yield lenient[done:] if done else text


def _iter_stories(value: Any, *, every_text: bool) -> Iterator[str]:
    """Yield the stories in a JSON value, one a line. `every_text`: texts of a list that are none as
    well."""
    if isinstance(value, str):
        if every_text or _STORY.match(value):
            yield " ".join(value.split())
    elif isinstance(value, list):
        for part in value:
            yield from _iter_stories(part, every_text=every_text)
    elif isinstance(value, dict):
        if story := _build_story(
            {key: text for key, text in value.items() if isinstance(text, str)}
        ):
            yield story
        else:
            for part in value.values():
                yield from _iter_stories(part, every_text=False)


def _build_story(fields: Mapping[str, str]) -> str | None:
    """Return the story whose clauses `fields` holds under names such as `role`, `iWant` or `So
    that`; None without the first two."""
    clauses: dict[str, str] = {}
    for key, text in fields.items():
        name = " ".join(_HUMP.sub(" ", key).split()).lower()
        for clause, names in _FIELDS.items():
            if clause not in clauses and name and names.fullmatch(name):
                clauses[clause] = _OPENINGS[clause].sub("", " ".join(text.split())).strip(" .,")
                break
    if "role" not in clauses or "want" not in clauses:
        return None
    benefit = f", so that {clauses['benefit']}" if clauses.get("benefit") else ""
    return f"As a {clauses['role']}, I want {clauses['want']}{benefit}."


def _replace_tables(lines: Sequence[str]) -> Iterator[str]:
    """`lines`, rows of tables as one story each where they hold one; heads of tables are left
    out."""
    head: list[str] = []
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("|"):
            head = []
            yield line
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if (
            number + 1 < len(lines)
            and "-" in lines[number + 1]
            and _RULE_ROW.fullmatch(lines[number + 1])
        ):
            head = cells
        elif not _RULE_ROW.fullmatch(line):
            yield _build_row_story(cells, head) or line


def _build_row_story(cells: Sequence[str], head: Sequence[str]) -> str | None:
    if story_cell := next((cell for cell in cells if _STORY.match(cell)), None):
        return story_cell
    if story := _build_story(dict(zip(head, cells, strict=False))):
        return story
    return ", ".join(filter(_is_clause, cells)) or None


def _is_clause(cell: str) -> bool:
    return any(opening.match(cell) for opening in _OPENINGS.values())
