"""Text -> lines with their place in the document: Markdown by markdown-it, HTML and XML by
their tags, JSON, YAML and CSV by their parsers. Knows no story but the names of its clauses."""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
MARKDOWN.disable(["code", "lheading", "reference", "html_block"])
MARKDOWN.core.ruler.enableOnly(["normalize", "block"])

# Quantifiers are possessive or bounded: no text makes these patterns slow.
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.IGNORECASE | re.DOTALL)
_REASONING = re.compile(
    r"<(reasoning|analysis|scratchpad)>.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL
)
_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
_DECLARATION = re.compile(r"<[?!][a-zA-Z][^<>]{0,300}>")
_TAG = re.compile(r"<(/?)([a-zA-Z][\w:-]{0,40})\b[^<>]{0,300}>")
_IN_TABLE = re.compile(r"(</?(?:table|thead|tbody|tr|td|th)\b[^<>]{0,300}>)\s+(?=<)", re.IGNORECASE)
_LINK = re.compile(r"\[([^\[\]\n]{1,200})\]\([^()\n]{1,300}\)")
_EMPHASIS = re.compile(r"\*{1,3}|(?<!\w)_{1,3}(?=[^\W_])|(?<=[^\W_])_{1,3}(?!\w)|`{1,3}|~~")
_BULLET = re.compile(
    r"(?:[-*+•‣◦–—>#]{1,6}\s+|\(?\d{1,4}[.):]\s*+|\(?[a-z][.)]\s+|\[[ x]?\]\s+|[☐☑✓✔]\s*+)",
    re.IGNORECASE,
)
_OTHER_BULLET = re.compile(r"^([ \t]{0,20})(?:[•‣◦▪●·–—]|\(\d{1,3}\)|[a-z]\))[ \t]+", re.MULTILINE)
_RULE = re.compile(r"[-=*_\s|:+]{3,}+")
_BOLD_LINE = re.compile(r"\W{0,8}(\*\*|__)[^*_\n]{1,120}\1\W{0,3}")
_SEPARATOR = "|||||"

_JSON_START = re.compile(r"^[ \t]{0,40}(?=[\[{])", re.MULTILINE)
_LAST_COMMA = re.compile(r",(\s*[\]}])")
_FAILED_DECODES = 20
"""Lines that begin like JSON and are none, from which on no further one is tried."""
_MAX_YAML_CHARS = 16_000
_YAML_START = re.compile(
    r"^(?:---\s*\n|[\w ]{1,40}:\s*\n|- +[\w ]{1,40}: )[^\0]{0,4000}?^\s+[\w ]{1,40}:", re.MULTILINE
)

_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z]+")
FIELDS = {
    "role": re.compile(
        r"as(?: an?| the)?(?: (?:user|role|persona|type of user))?"
        r"|(?:the )?(?:user )?(?:role|persona|actor|who)(?: name)?|user(?: type)?|stakeholder"
    ),
    "want": re.compile(
        r"(?:i|we) (?:want|need|would like)(?: to)?"
        r"|(?:user )?(?:wants?|goal|action|need|what|feature|capability|wish|request)(?: to)?"
    ),
    "benefit": re.compile(
        r"so(?: that)?(?: i can)?|in order to"
        r"|(?:business )?(?:benefit|why|reason|value|outcome|purpose)(?: value)?"
    ),
}
"""Names of clauses in records and labels, in lower case without marks."""
OPENINGS = {
    "role": re.compile(r"^as\b:?(?:\s+(?:an?|the)\b)?:?\s", re.IGNORECASE),
    "want": re.compile(r"^(?:i|we) (?:want|need|would like)\b:?", re.IGNORECASE),
    "benefit": re.compile(r"^(?:so that|in order (?:to|that))\b:?", re.IGNORECASE),
}
_STORY_START = re.compile(r"^\W{0,5}as\b.{1,200}?\b(?:i|we|it)\b", re.IGNORECASE)

_INLINE_TAG = re.compile(r"a|b|code|del|em|font|i|ins|kbd|mark|s|small|span|strong")
_HEAD_CELL = "\x00|"
_CELLS = {"td": "|", "th": _HEAD_CELL}


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    """1-based, in the text that was parsed."""
    text: str
    """Without bullets, numbers, emphasis and other marks."""
    depth: int = 0
    """Nesting of lists, and 1 for what is indented below the first line of its paragraph."""
    is_heading: bool = False
    """Heading, line in bold alone, or line that ends in a colon."""
    is_item: bool = False
    opens_block: bool = True
    """Whether it is the first line of a paragraph, item, row or heading."""


def parse_lines(text: str) -> list[Line]:
    """Return the lines of `text` that hold something, in order; a record of a format for data is a
    line, a story where it has the clauses of one."""
    text = _remove_envelopes(text).replace(_SEPARATOR, "\n\n")
    rows = _read_csv(text) or _read_yaml(text)
    if rows:
        return [Line(number, row) for number, row in enumerate(rows, 1)]
    return list(_iter_lines(_OTHER_BULLET.sub(r"\1- ", "\n".join(_replace_json(text)))))


def extract_comments(text: str) -> str:
    """Return what stands in the HTML comments of `text`, one a line."""
    return "\n".join(_COMMENT.findall(text)) if "<!--" in text else ""


def remove_tags(text: str) -> str:
    """Return `text` without tags, and with the words of its links."""
    plain = " ".join(_render_html(text).split()) if "<" in text else text
    return _LINK.sub(r"\1", plain)


def remove_marks(raw: str) -> str:
    """Return a line without bullets, numbers, emphasis and the words around links."""
    line = _EMPHASIS.sub("", raw).strip().strip("|").strip()
    if "](" in line:
        line = _LINK.sub(r"\1", line)
    while match := _BULLET.match(line):
        line = line[match.end() :].lstrip()
    return " ".join(line.strip('"').split())


def find_field(name: str) -> str | None:
    """Return which clause of a story a name such as `iWant` or `So that` stands for."""
    words = " ".join(_HUMP.sub(" ", name).split()).lower()
    for clause, names in FIELDS.items():
        if words and names.fullmatch(words):
            return clause
    return None


def render_story(fields: Mapping[str, str]) -> str | None:
    """Return the story whose clauses `fields` holds by the names of FIELDS; None without the first
    two."""
    clauses = {}
    for clause, text in fields.items():
        clauses[clause] = OPENINGS[clause].sub("", " ".join(text.split())).strip(" .,")
    if not clauses.get("role") or not clauses.get("want"):
        return None
    benefit = f", so that {clauses['benefit']}" if clauses.get("benefit") else ""
    return f"As a {clauses['role']}, I want {clauses['want']}{benefit}."


# -------------------------------------------------------------------------------------- Markdown


def _iter_lines(text: str) -> Iterator[Line]:
    source = text.split("\n")
    depth = 0
    is_item = is_heading = False
    row: list[str] | None = None
    head: list[str] = []
    for token in MARKDOWN.parse(text):
        kind = token.type
        if kind in ("bullet_list_open", "ordered_list_open"):
            depth += 1
        elif kind in ("bullet_list_close", "ordered_list_close"):
            depth -= 1
        elif kind == "list_item_open":
            is_item = True
        elif kind in ("heading_open", "heading_close"):
            is_heading = kind == "heading_open"
        elif kind == "fence":
            yield from _iter_fence(token, depth)
        elif kind == "table_open":
            head = []
        elif kind == "tr_open":
            row = []
        elif kind == "tr_close" and row is not None:
            if not head:
                head = row
            if head is not row or not _names_clauses(row):
                yield Line(_get_number(token, source), _render_row(row, head), depth)
            row = None
        elif kind == "inline" and row is not None:
            row.append(remove_marks(token.content))
        elif kind == "inline":
            yield from _iter_paragraph(token, source, depth, is_item, is_heading)
            is_item = False


def _iter_fence(token: Token, depth: int) -> Iterator[Line]:
    """Yield the lines of a fenced block: a record each of data, else those of its text."""
    first = _get_number(token, []) + 1
    rows = _read_csv(token.content) or _read_yaml(token.content)
    if rows:
        yield from (Line(first + at, row, depth) for at, row in enumerate(rows))
        return
    for line in _iter_lines(token.content.replace("```", "").replace("~~~", "")):
        yield replace(line, number=first + line.number - 1, depth=depth + line.depth)


def _iter_paragraph(
    token: Token, source: Sequence[str], depth: int, is_item: bool, is_heading: bool
) -> Iterator[Line]:
    start = _get_number(token, source)
    base = _measure_indent(source, start)
    opens = True
    for offset, raw in enumerate(token.content.split("\n")):
        text = remove_marks(
            _render_row(raw.strip().strip("|").split("|"), ()) if _is_row(raw) else raw
        )
        if not text or _RULE.fullmatch(text):
            continue
        indented = not opens and _measure_indent(source, start + offset) > base
        yield Line(
            start + offset,
            text,
            depth + (1 if indented else 0),
            is_heading or text.endswith(":") or _BOLD_LINE.fullmatch(raw.strip()) is not None,
            is_item and opens,
            opens,
        )
        opens = False


def _is_row(raw: str) -> bool:
    return raw.lstrip().startswith("|")


def _measure_indent(source: Sequence[str], number: int) -> int:
    line = source[number - 1].expandtabs(4) if number <= len(source) else ""
    return len(line) - len(line.lstrip())


def _get_number(token: Token, source: Sequence[str]) -> int:
    return token.map[0] + 1 if token.map else len(source)


def _names_clauses(cells: Sequence[str]) -> bool:
    """Return whether a row is the head of a table: it names clauses, or holds no story."""
    if any(find_field(cell) for cell in cells):
        return True
    return not any(_STORY_START.match(cell) or _is_clause(cell) for cell in cells)


def _render_row(cells: Sequence[str], head: Sequence[str]) -> str:
    """Return the story in a row of a table, or its cells."""
    cells = [cell.strip() for cell in cells]
    for cell in cells:
        if _STORY_START.match(cell):
            return cell
    fields = {find_field(name) or "": cell for name, cell in zip(head, cells, strict=False)}
    fields.pop("", None)
    clauses = [cell for cell in cells if _is_clause(cell)]
    return render_story(fields) or ", ".join(clauses or filter(None, cells))


def _is_clause(cell: str) -> bool:
    return any(opening.match(f"{cell} ") for opening in OPENINGS.values())


# ---------------------------------------------------------------------------------- HTML and XML


def _remove_envelopes(text: str) -> str:
    if "<" not in text:
        return text
    answers = _ANSWER.findall(text)
    text = answers[-1] if answers else _REASONING.sub("\n", text)
    return _render_html(text)


def _render_html(text: str) -> str:
    """Return Markdown of a text with tags: items, cells, and `name: text` for elements named after
    a clause."""
    text = _DECLARATION.sub("", _COMMENT.sub(" ", text))
    lines = _TAG.sub(_render_tag, _IN_TABLE.sub(r"\1", text)).split("\n")
    for at, line in enumerate(lines):
        heads = line.count(_HEAD_CELL)
        if heads:
            lines[at] = line.replace(_HEAD_CELL, "|") + "\n" + "|-" * heads + "|"
    return html.unescape("\n".join(lines))


def _render_tag(tag: re.Match[str]) -> str:
    closes = bool(tag[1])
    name = tag[2].lower()
    if name in ("td", "th"):
        return "" if closes else _CELLS[name]
    if _INLINE_TAG.fullmatch(name):
        return " "
    if name == "li":
        return " " if closes else "\n- "
    if name == "tr":
        return "|" if closes else "\n"
    if closes:
        return "\n"
    return f"\n{tag[2]}: " if find_field(tag[2]) else "\n\n"


# ------------------------------------------------------------------------------- formats for data


def _replace_json(text: str) -> Iterator[str]:
    """Yield the parts of `text` in order, JSON values that hold stories replaced by these."""
    if "{" not in text and "[" not in text:
        yield text
        return
    done = failed = 0
    decoder = json.JSONDecoder()
    lenient = _LAST_COMMA.sub(r"\1", text)
    # A value without stories is decoded again for each value in it that begins a line.
    rest = _FAILED_DECODES * len(lenient)
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
        stories = list(_iter_stories(value, every_text=True))
        if stories:
            yield lenient[done : start.start()]
            yield "\n\n".join(stories)
            done = end + (lenient[end : end + 1] == ",")
            continue
        rest -= end - start.end()
        if rest < 0:
            break
    yield lenient[done:] if done else text


def _read_yaml(text: str) -> list[str]:
    """Return the stories of a YAML document, empty where `text` is none or holds none."""
    if len(text) > _MAX_YAML_CHARS or not _YAML_START.match(text.lstrip("\n")):
        return []
    if "&" in text or "*" in text:  # an alias can stand for more than memory holds
        return []
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    if not isinstance(value, dict | list):
        return []
    return list(_iter_stories(value, every_text=False))


def _read_csv(text: str) -> list[str]:
    """Return the stories of a table of comma-, semicolon- or tab-separated values whose head names
    role and want; empty where `text` is none."""
    lines = text.strip("\n").splitlines()
    if len(lines) < 2 or lines[0].lstrip().startswith("|"):
        return []
    for mark in ",;\t":
        head = [find_field(name.strip().strip('"')) for name in lines[0].split(mark)]
        if "role" in head and "want" in head:
            break
    else:
        return []
    rows = []
    try:
        for cells in csv.reader(lines[1:], delimiter=mark, skipinitialspace=True):
            fields = {name or "": cell for name, cell in zip(head, cells, strict=False)}
            fields.pop("", None)
            rows.append(render_story(fields) or ", ".join(cells))
    except csv.Error:
        return []
    return [row for row in rows if row.strip()]


def _iter_stories(value: Any, *, every_text: bool) -> Iterator[str]:
    """Yield the stories in a JSON or YAML value, one a line. `every_text`: texts of a list that are
    none as well."""
    if isinstance(value, str):
        if every_text or _STORY_START.match(value):
            yield " ".join(value.split())
    elif isinstance(value, list):
        for part in value:
            yield from _iter_stories(part, every_text=every_text)
    elif isinstance(value, dict):
        fields: dict[str, str] = {}
        for name, text in value.items():
            clause = find_field(str(name))
            if clause and isinstance(text, str | int | float):
                fields.setdefault(clause, str(text))
        story = render_story(fields)
        if story:
            yield story
            return
        for part in value.values():
            yield from _iter_stories(part, every_text=False)
