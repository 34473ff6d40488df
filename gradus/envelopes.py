"""Envelopes: what chat formats put around an answer. Turns, channels, reasoning, answer tags and
quotes are taken off here, before code is looked for. docs/extraction.md states the rules;
tests/cases/extraction/ holds the formats.

A mark in a literal or comment of code is code. Everything is linear in the text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

# Quantifiers are possessive or bounded: no text makes these patterns slow. Patterns of elements
# have three groups in each alternative: what makes the mark an end, a name, and attributes.
_REASONING = re.compile(
    r"(?i:<\s{0,3}(/?)\s{0,3}((?:seed:|ant_?)?think(?:ing)?|thoughts?|reason(?:ing)?|analysis"
    r"|scratchpad|reflection|inner_monologue)((?:\s[^<>\n]{0,200})?)>)"
    r"|(?i:<[|\uff5c](begin|end|start)_(?:of_)?(thought|thinking)()[|\uff5c]>)"
    r"|\u25c1(/?)(think)()\u25b7"
    r"|^[ \t]*+\[()(THINK)()\]|\[(/)(THINK)()\]",
    re.MULTILINE,
)
_THOUGHTS = re.compile(r"(?:seed:|ant_?)?think(?:ing)?|thoughts?", re.IGNORECASE)
"""Names of reasoning that always stands before the answer."""
_ANSWER = re.compile(
    r"<(/?)(answer|final_?answer|solution|final_?solution|output|response|final|result|program"
    r"|implementation|submission|(?:ant_?)?artifact|tool_call|function_call|parameter)"
    r"((?:[\s=:][^<>\n]{0,200})?)>"
    r"|<[|\uff5c](begin|end|start)_(?:of_)?(solution|box|response|answer)()[|\uff5c]>"
    r"|\\()(boxed)()\s?\{",
    re.IGNORECASE,
)
CODE_MARKUP = re.compile(
    r"<(/?)(pre|code|syntaxhighlight)((?:\s[^<>\n]{0,200})?)>"
    r"|\\(begin|end)\{(verbatim|lstlisting|minted)\}((?:\[[^\]\n]{0,200}\])?(?:\{\w{1,20}\})?)"
    r"|^[ \t]*+#\+(begin|end)_(src)\b([^\n]*+)",
    re.IGNORECASE | re.MULTILINE,
)

_SPECIAL = (
    r"<[|\uff5c](?!(?i:begin|start|end)_(?i:of_)?(?i:thought|thinking|solution|box|response|answer))"
    r"[^\s<>]{1,40}>"
)
TURN_END = rf"(?:{_SPECIAL}|</s>|<eos>|<end_of_turn>)"
_LAST_TURN_ENDS = re.compile(rf"(?:{TURN_END}\s{{0,9}}+){{1,9}}+\s*+\Z")
_FIRST_TOKENS = re.compile(rf"\s*+(?:(?:{_SPECIAL}|<s>|<bos>)\s{{0,9}}+){{1,9}}+")
TURN_BREAK = re.compile(r"<[|\uff5c]\w[^\s<>]{0,40}[|\uff5c]>|</s>|<eos>|<end_of_turn>")
_CHANNEL = re.compile(
    r"<\|channel\|>\s{0,9}(\w{1,20})[^<\n]{0,80}(?:<\|constrain\|>[^<\n]{0,80})?<\|message\|>"
    r"|<\|(?:end|return|call|start|channel)\|>"
)
_ROLE = re.compile(
    r"(?:<\|(?:im_start|start_header_id|start_of_role|start)\|>|<start_of_turn>) ?(\w{1,20})"
    r"(?:<\|(?:end_header_id|end_of_role|message)\|>)?"
    r"|(?i:(?:<\|START_OF_TURN_TOKEN\|>)?<[|\uff5c](assistant|user|system|chatbot|human)(?:_TOKEN)?"
    r"[|\uff5c]>)"
    r"|^[ \t]*+\[(INST)\]|\[(/INST)\]"
    r"|^#{2,3} ?(Response|Instruction):"
    r"|(?:\A|\n\n)(USER|ASSISTANT|Human|Assistant):",
    re.MULTILINE,
)
_OWN_ROLES = frozenset({"assistant", "model", "chatbot", "response", "/inst"})
_QUOTED_LINES = re.compile(r"(?:^[ \t]{0,3}>[^\n]*+(?:\n|\Z))++", re.MULTILINE)
_QUOTED_FENCE = re.compile(r"^[ \t]{0,3}(?:>[ \t]?){1,5}[ \t]*+(?:```|~~~)", re.MULTILINE)
_QUOTE = re.compile(r"^[ \t]{0,3}(?:>[ \t]?){1,5}", re.MULTILINE)
_BRACE = re.compile(r"[{}]")
_LATEX_TEXT = re.compile(r"\s*\\(?:text|texttt|mathtt|mathrm)\{(.*)\}\s*", re.DOTALL)
_CODE_FIELD = re.compile(
    r"(code|source)\Z|^(?:(solution|final_?answer|answer|program|implementation|completion)"
    r"|content|text|output|response|result|arguments|parameters|input|function|tool_calls)\Z",
    re.IGNORECASE,
)


FindMarks = Callable[[re.Pattern[str], str], Iterable[re.Match[str]]]
"""Returns the matches of a pattern in a text, without those in literals and comments."""


@dataclass(slots=True)
class Element:
    """What stands between two marks, such as `<answer>` and `</answer>`."""

    opening: int
    """Where the first mark begins."""
    start: int
    end: int
    closing: int
    """Where the second mark ends."""
    name: str
    attributes: str
    is_closed: bool


def find_marks(
    pattern: re.Pattern[str],
    text: str,
    literal: re.Pattern[str] | None,
    find_code: Callable[[str], Iterable[tuple[int, int]]],
) -> list[re.Match[str]]:
    """Return the matches of `pattern` that stand in no literal or comment: of the spans of code, or
    of their own line elsewhere. What is not closed there is no literal."""
    marks = list(pattern.finditer(text))
    if not marks or literal is None:
        return marks
    code = list(find_code(text))
    code_starts = [start for start, _ in code]
    literals = []
    for start, end in code:
        for match in literal.finditer(text, start, end):
            if match.end() < end:
                literals.append(match.span())
    line_end = -1
    for mark in marks:
        at = bisect_right(code_starts, mark.start()) - 1
        if mark.start() < line_end or (at >= 0 and mark.start() < code[at][1]):
            continue
        line_start = text.rfind("\n", 0, mark.start()) + 1
        line_end = text.find("\n", mark.start()) % (len(text) + 1)
        for match in literal.finditer(text[line_start:line_end] + "\n"):
            is_address = match[0].startswith("//") and text[line_start + match.start() - 1] == ":"
            if not is_address and line_start + match.end() <= line_end:
                literals.append((line_start + match.start(), line_start + match.end()))
    literals.sort()
    starts = [start for start, _ in literals]
    visible = []
    for mark in marks:
        at = bisect_right(starts, mark.start()) - 1
        if at < 0 or literals[at][1] <= mark.start():
            visible.append(mark)
    return visible


def _find_all(pattern: re.Pattern[str], text: str) -> Iterable[re.Match[str]]:
    return pattern.finditer(text)


def remove_quotes(text: str) -> str:
    """Return `text` with lines quoted by `>` that hold a fence as plain lines."""
    if not _QUOTED_FENCE.search(text):
        return text
    return _QUOTED_LINES.sub(
        lambda lines: _QUOTE.sub("", lines[0]) if _QUOTED_FENCE.search(lines[0]) else lines[0], text
    )


def remove_turns(text: str, find: FindMarks) -> tuple[str, bool]:
    """Return what the model says in its own turn and in its final channel, without special tokens
    around it; and whether it never comes to that channel."""
    is_unfinished = False
    marks = list(find(_CHANNEL, text))
    messages = [mark for mark in marks if mark[1]]
    visible = [mark for mark in messages if mark[1] == "final"]
    visible = visible or [mark for mark in messages if mark[1] != "analysis"]
    if visible:
        start = visible[-1].end()
        ends = [mark.start() for mark in marks if mark.start() >= start]
        text = text[start : ends[0] if ends else len(text)]
    elif messages:
        text = text[: messages[0].start()]
        is_unfinished = True
    elif text.startswith("analysis") and "assistantfinal" in text:  # special tokens left out
        text = text.rpartition("assistantfinal")[2]
    text = _select_own_turn(text, find)
    first = _FIRST_TOKENS.match(text)
    if first:
        text = text[first.end() :]
    if text.rstrip().endswith(">"):  # costs less than the search
        text = _LAST_TURN_ENDS.sub("", text)
    return text, is_unfinished


def extract_message(completion: str) -> str:
    """Return what the model says in its own turn, for texts that are no code: without special
    tokens. Where it never comes to its final channel, `<think>`."""
    text, is_unfinished = remove_turns(completion, _find_all)
    return "<think>" if is_unfinished else TURN_BREAK.sub("", text)


def _select_own_turn(text: str, find: FindMarks) -> str:
    """Return the text behind the model's first header, up to a turn of another role. A prompt that
    is repeated in front is left out."""
    start = position = 0
    is_own = True
    has_text = False
    for header in find(_ROLE, text):
        if header[3] and "[/INST]" not in text:
            break  # a list of OCaml
        has_text = has_text or bool(text[position : header.start()].strip())
        position = header.end()
        is_model = next(filter(None, header.groups())).lower() in _OWN_ROLES
        if is_own and has_text and not is_model:
            return text[start : header.start()]
        if is_model and not (is_own and has_text):
            start = position
            has_text = False
        is_own = is_model
    return text[start:]


def remove_reasoning(text: str, find: FindMarks = _find_all) -> tuple[str, bool]:
    """Return `text` without reasoning, and whether reasoning is opened and never closed.

    What stands before the last end of thinking is reasoning; where thoughts do not end, all behind
    their opening.
    """
    parts: list[str] = []
    start = 0
    opening = None
    is_closed = False
    has_capitals = "[/THINK]" in text
    for mark in find(_REASONING, text):
        slash, name, _ = _parse_mark(mark)
        if _is_end(slash):
            if opening is None or _THOUGHTS.fullmatch(name):
                parts.clear()
            else:
                parts.append(text[start:opening])
            start = mark.end()
            opening = None
            is_closed = True
        elif opening is None and (name != "THINK" or has_capitals):
            opening = mark.start()
    if opening is not None and not is_closed:
        return text[:opening], True
    return "\n".join((*parts, text[start:])), False


def find_elements(pattern: re.Pattern[str], text: str, find: FindMarks) -> list[Element]:
    """Return the elements of a pattern of marks in the order of their starts.

    An element ends at the last end of its name before the next of that name. One that never ends
    counts if it begins a line; an end without an opening closes what stands before it.
    """
    elements: list[Element] = []
    latest: dict[str, Element] = {}
    for mark in find(pattern, text):
        slash, name, attributes = _parse_mark(mark)
        name = name.lower()
        element = latest.get(name)
        if not _is_end(slash):
            if element and not element.is_closed:
                element.end = element.closing = mark.start()
            place = (mark.start(), mark.end(), len(text), len(text))
            element = latest[name] = Element(*place, name, attributes, False)
            elements.append(element)
            continue
        if element is None:
            element = latest[name] = Element(0, 0, 0, 0, name, attributes, True)
            elements.append(element)
        element.end = mark.start()
        element.closing = mark.end()
        element.is_closed = True
    elements.sort(key=lambda element: element.start)
    usable = []
    for element in elements:
        if (
            element.is_closed
            or element.name == "boxed"
            or text[element.opening - 1 : element.opening] in "\n"
        ):
            usable.append(element)
    return usable


def find_answers(text: str, literal: re.Pattern[str] | None, find: FindMarks) -> list[Element]:
    """Return the elements that may hold the answer, in the order of their starts. Of boxes in LaTeX
    the last counts, up to the brace that closes it."""
    elements = find_elements(_ANSWER, text, find)
    boxes = [element for element in elements if element.name == "boxed"]
    answers = [element for element in elements if element.name != "boxed"]
    if boxes:
        box = boxes[-1]
        if literal:
            pattern = re.compile(f"{literal.pattern}|[{{}}]", literal.flags)
        else:
            pattern = _BRACE
        depth = 1
        for match in pattern.finditer(text, box.start):
            depth += (match[0] == "{") - (match[0] == "}")
            if not depth:
                inner = _LATEX_TEXT.fullmatch(text, box.start, match.start())
                box.start, box.end = inner.span(1) if inner else (box.start, match.start())
                box.closing = match.end()
                answers.append(box)
                break
    return answers


def decode_json(text: str) -> str | None:
    """Return the code in a JSON value: a text, or a field that is named as one that holds code."""
    text = text.strip()
    if text[:1] not in ("{", "[", '"'):
        return None
    try:
        return _find_code(json.JSONDecoder(strict=False).raw_decode(text)[0])
    except (ValueError, RecursionError):
        return None


def _find_code(value: Any) -> str | None:
    if isinstance(value, str):
        return decode_json(value) or value
    if isinstance(value, list):
        return next(filter(None, map(_find_code, value)), None)
    if not isinstance(value, dict):
        return None
    for name in sorted(filter(_CODE_FIELD.search, value), key=_rank_field):
        code = _find_code(value[name])
        if code:
            return code
    return None


def _rank_field(name: str) -> int:
    match = _CODE_FIELD.search(name)
    return (match.lastindex or 3) if match else 3


def _parse_mark(mark: re.Match[str]) -> tuple[str, str, str]:
    slash, name, attributes = (group for group in mark.groups() if group is not None)
    return slash, name, attributes


def _is_end(slash: str) -> bool:
    return slash.lower() in ("/", "end")
