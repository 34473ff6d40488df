"""Completion -> answer: which part of what the model wrote is the code. docs/extraction.md states
the rules.

An answer is one program text. It depends on the completion and on names that the task gives, never
on a verdict, and costs time linear in the completion.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from html import unescape
from itertools import islice
from textwrap import dedent

from gradus.code_blocks import Layout, Syntax, select_blocks
from gradus.envelopes import (
    CODE_MARKUP,
    TURN_BREAK,
    TURN_END,
    decode_json,
    find_answers,
    find_elements,
    find_marks,
    remove_quotes,
    remove_reasoning,
    remove_turns,
)

# Quantifiers are possessive (`*+`): with backtracking, one long line of spaces would take hours.
_FENCE = re.compile(r"^([^\n`~]*+)(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)([^\n`]*+)$", re.MULTILINE)
_LIST_ITEM = re.compile(r"[\s\ufeff]*+(?:(?:[-*+\u2022]|\d{1,3}[.)])[ \t]*+)?")
_COMMENT_LINE = re.compile(r"\s*+(?://|/?\*|\(\*|#|--)")
_INLINE_FENCE = re.compile(r"```([^\n`]++)```")
_FILE_IN_INFO = re.compile(
    r"(?:^|[\s,{])(?:\w+=)?[\"']?([^\s\"'={},]{1,200}\.\w{1,16})[\"']?(?=$|[\s,}])"
)
_FILE_LABEL = r"(?:(?:[Ff]ile(?:name)?|[Pp]ath):?[ \t]*)?"
_FILE_IN_COMMENT = re.compile(
    rf"\s*(?://[/!]?|/\*+)[ \t]*(?:[-=]{{1,9}} ?)?{_FILE_LABEL}`?([^\s`]+\.\w+)`?:?"
    r"(?: ?[-=]{1,9})?[ \t]*(?:\*/)?[ \t]*(?:\n|\Z)"
)
_FILE_ABOVE = re.compile(
    rf"(?:^|\n)[ \t#>*]{{0,9}}{_FILE_LABEL}[`*]{{0,3}}([\w./-]{{1,200}}\.\w{{1,16}})"
    r"[`*:]{0,5}\s*\Z"
)
_ANY_FENCE = re.compile("```|~~~")
_INFO_FENCE = re.compile(r"^[ \t]*+(?:`{3,}+|~{3,}+)[ \t]*+[^\s`]", re.MULTILINE)
_WRAPPERS = frozenset({"markdown", "md"})
"""Tags of blocks that hold a text with blocks."""
_MAX_BLOCKS = 1000
"""What stands behind so many is prose. A bound of the cost: 1 MB of fences is no answer."""
_MAX_ELEMENTS = 50
_MAX_NESTED = 3
"""Texts in JSON that hold JSON again."""
_BYTE_ORDER_MARKS = "\ufeff\u200b\u2060"
_MARKUP_TAG = re.compile(r"</?(?:span|code|b|i|em|strong)\b[^<>\n]{0,200}>", re.IGNORECASE)


@lru_cache
def _compile_closing(mark: str, length: int) -> re.Pattern[str]:
    """Return the pattern of ends of a block; one at the end of a line of code has no group 1."""
    return re.compile(
        rf"(?:(^[^\S\n]*+)|(?<=[^\n{mark}])){mark}{{{length},}}+"
        rf"(?:[ \t]*+(?:{TURN_END}|</\w{{1,20}}>))*+[^\S\n]*+$",
        re.MULTILINE,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    blocks: int = 0
    """Fenced blocks in the completion; 0 when it had none and was taken whole."""
    prose_chars: int = 0
    """Characters outside of all blocks, thinking and white space at the ends left out."""
    trailing_chars: int = 0
    """Characters of `prose_chars` that stand behind the last block."""
    flags: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Beside `text`: path -> text of the blocks that name a file of the layout."""


@dataclass(frozen=True, slots=True)
class _Block:
    tag: str
    text: str
    start: int
    end: int
    closed: bool
    name: str | None = None
    """The file that it says it is."""
    code_at: int = 0
    """Where `text` starts in the completion."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """What finds code in texts of one completion. Blocks of a text are looked for once."""

    tags: Collection[str]
    syntax: Syntax | None
    blocks: dict[str, list[_Block]] = field(default_factory=dict)

    @property
    def literal(self) -> re.Pattern[str] | None:
        return self.syntax.literal if self.syntax else None

    def find_blocks(self, text: str) -> list[_Block]:
        if text not in self.blocks:
            self.blocks[text] = _find_blocks(text, self.tags, self.literal)
        return self.blocks[text]

    def find_marks(self, pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
        return find_marks(pattern, text, self.literal, self._find_code)

    def _find_code(self, text: str) -> list[tuple[int, int]]:
        spans = []
        for block in self.find_blocks(text):
            if not block.tag or block.tag in self.tags:
                spans.append((block.code_at, block.code_at + len(block.text)))
        return spans

    def defines(self, code: str) -> bool:
        return self.syntax is not None and bool(self.syntax.definitions(dedent(code.strip("\n"))))

    def holds_code(self, text: str) -> bool:
        blocks = [*self.find_blocks(text), *self.find_markup_blocks(text)]
        is_fenced = any(block.text.strip() for block in blocks)
        return is_fenced or self.defines(text) or decode_json(text) is not None

    def find_markup_blocks(self, text: str) -> list[_Block]:
        """Return the blocks of HTML, LaTeX and Org mode, the inner ones of nested marks."""
        elements = find_elements(CODE_MARKUP, text, self.find_marks)
        blocks: list[_Block] = []
        for number, element in enumerate(elements, start=1):
            if any(inner.closing <= element.closing for inner in elements[number : number + 1]):
                continue
            code = _MARKUP_TAG.sub("", text[element.start : element.end])
            if "<" not in code:  # else it is not escaped
                code = unescape(code) if element.name in ("pre", "code") else code
            words = re.findall(r"[a-z]+", element.attributes.lower())
            tag = next((word for word in words if word in self.tags), "")
            place = (element.opening, element.closing, element.is_closed)
            blocks.append(_Block(tag, code, *place, code_at=element.start))
        is_code = self.syntax is None or any(self.defines(block.text) for block in blocks)
        return blocks[:_MAX_BLOCKS] if is_code else []


def extract(
    completion: str,
    tags: Collection[str],
    syntax: Syntax | None = None,
    needed: Callable[[], Collection[str]] = tuple,
    layout: Layout | None = None,
) -> Answer:
    """Return the answer in `completion`.

    `tags`: language tags, lower case. `needed`: the names that the task or its tests need, asked
    for when there are several blocks. `layout`: None for answers that are one file, whatever blocks
    are called.
    """
    return _extract(completion, _Reader(tags, syntax), needed, layout, 0)


def remove_thinking(completion: str) -> str:
    """Return the text behind the last end of reasoning; where it does not end, the text before
    it."""
    return remove_reasoning(completion)[0]


def _extract(
    completion: str,
    reader: _Reader,
    needed: Callable[[], Collection[str]],
    layout: Layout | None,
    depth: int,
) -> Answer:
    text = remove_quotes(completion.lstrip(_BYTE_ORDER_MARKS).replace("\r\n", "\n"))
    text, is_unfinished = remove_turns(text, reader.find_marks)
    visible, is_open = remove_reasoning(text, reader.find_marks)
    flags = ["extract:unclosed_think"] if is_unfinished or is_open else []
    start, end = _select_element(reader, visible)
    content = visible[start:end]
    blocks = reader.find_blocks(content) or reader.find_markup_blocks(content)
    if len(blocks) == 1 and _is_end_of_prefilled(reader, content, blocks[0]):
        end = start + blocks[0].start
        content = visible[start:end]
        blocks = []
    before = visible[:start].strip()
    after = visible[end:].strip()
    code = decode_json(content)
    if code is None and blocks and not any(block.tag in reader.tags for block in blocks):
        code = decode_json(blocks[-1].text)
    if code is not None and depth < _MAX_NESTED:
        inner = _extract(code, reader, needed, layout, depth + 1)
        return replace(inner, prose_chars=inner.prose_chars + len(before) + len(after))
    if not blocks:
        raw = _clean_raw(reader, content)
        return Answer(raw, 0, len(before) + len(after), len(after), tuple(flags))
    selection = _select_files(blocks, reader, needed, layout)
    flags += selection.flags
    if not all(block.closed for block in (*selection.chosen, *selection.files.values())):
        flags.append("extract:unclosed_fence")
    parts = [before]
    position = 0
    for block in blocks:
        parts.append(content[position : block.start].strip())
        position = block.end
    trailing = len(content[position:].strip()) + len(after)
    code = "\n".join(block.text.strip("\n") for block in selection.chosen)
    return Answer(
        text=code if selection.chosen or not layout else layout.given[layout.entry],
        blocks=len(blocks) - max(0, selection.named - 1) - max(0, len(selection.chosen) - 1),
        prose_chars=sum(map(len, parts)) + trailing,
        trailing_chars=trailing,
        flags=tuple(flags),
        files={path: block.text for path, block in selection.files.items()},
    )


def _select_element(reader: _Reader, text: str) -> tuple[int, int]:
    """Return the span of the last element that is marked as the answer and holds code; all of
    `text` if there is none, and code elsewhere."""
    elements = find_answers(text, reader.literal, reader.find_marks)
    for element in reversed(elements[-_MAX_ELEMENTS:]):
        if reader.holds_code(text[element.start : element.end]):
            return element.start, element.end
    if not reader.find_blocks(text):
        for element in reversed(elements):
            if text[element.start : element.end].strip():
                return element.start, element.end
    return 0, len(text)


def _clean_raw(reader: _Reader, text: str) -> str:
    """Return a text without blocks as code: up to the end of the turn."""
    code = text.strip().lstrip(_BYTE_ORDER_MARKS)
    ends = reader.find_marks(TURN_BREAK, code)
    return code[: ends[0].start()].rstrip() if ends else code


def _is_end_of_prefilled(reader: _Reader, text: str, block: _Block) -> bool:
    """Return whether the only fence ends code that the prompt opened."""
    is_bare = not block.closed and not block.tag
    return is_bare and reader.defines(text[: block.start]) and not reader.defines(block.text)


@dataclass(frozen=True, slots=True)
class _Selection:
    chosen: Sequence[_Block]
    """Parts of the entry; empty where the task's own file stays."""
    files: Mapping[str, _Block]
    named: int
    """Blocks that name a file."""
    flags: Sequence[str]


def _select_files(
    blocks: Sequence[_Block],
    reader: _Reader,
    needed: Callable[[], Collection[str]],
    layout: Layout | None,
) -> _Selection:
    usable = _filter_by_language(blocks, reader.tags)
    if layout is None or (len(blocks) == 1 and not layout.given):
        return _Selection(_join(usable, reader, needed) or usable[-1:], {}, 0, ())
    unnamed = [block for block in usable if not block.name]
    files: dict[str, _Block] = {}
    flags: set[str] = set()
    for block in usable:
        if block.name:
            path = layout.resolve_path(block.name)
            if path is None:
                flags.add("extract:ignored_file")
            else:
                files[path] = block
    named = len(usable) - len(unnamed)
    entry = files.pop(layout.entry, None)
    if entry:
        return _Selection([entry], files, named, [*flags])
    chosen = _join(unnamed, reader, needed, is_sure=not (files and layout.entry in layout.given))
    if chosen:
        return _Selection(chosen, files, named, [*flags])
    candidates = [*unnamed, *files.values()] or usable
    if layout.given.keys().isdisjoint(files):
        chosen = _join(candidates, reader, needed, is_sure=layout.entry not in layout.given)
    if not chosen and not (files and layout.entry in layout.given):
        chosen = candidates[-1:]
    files = {path: block for path, block in files.items() if block not in chosen}
    return _Selection(chosen, files, named, [*flags])


def _filter_by_language(blocks: Sequence[_Block], tags: Collection[str]) -> Sequence[_Block]:
    """Return the blocks of the language; else those without a tag, else all. Empty ones count only
    if there are no others."""
    non_empty = [block for block in blocks if block.text.strip()] or blocks
    tagged = [block for block in non_empty if block.tag in tags]
    return tagged or [block for block in non_empty if not block.tag] or non_empty


def _join(
    blocks: Sequence[_Block],
    reader: _Reader,
    needed: Callable[[], Collection[str]],
    *,
    is_sure: bool = True,
) -> Sequence[_Block]:
    """Return the blocks that make one program; none if no block defines a needed name. A single
    block is not looked at where that `is_sure`."""
    if len(blocks) == 1 and is_sure:
        return blocks
    if reader.syntax is None:
        return ()
    texts = [block.text for block in blocks]
    return [blocks[at] for at in select_blocks(texts, needed(), reader.syntax.definitions)]


def _find_blocks(text: str, tags: Collection[str], literal: re.Pattern[str] | None) -> list[_Block]:
    blocks: list[_Block] = []
    position = 0
    while len(blocks) < _MAX_BLOCKS:
        opening = _FENCE.search(text, position)
        if opening is None:
            break
        before, mark, word, remainder = opening.groups()
        body = opening.end() + 1
        tag = _parse_tag(word)
        is_late = mark[0] == "`" and tag in tags and not remainder.strip()
        if not (_LIST_ITEM.fullmatch(before) or (is_late and not _COMMENT_LINE.match(before))):
            position = opening.end()
            continue
        inner = _FENCE.search(text, body) if tag in _WRAPPERS else _FENCE.match(text, body)
        if inner and _parse_tag(inner[3]) in tags and not inner[1].strip():
            position = body
            continue
        is_code = not tag or tag in tags
        end, is_broken = _find_end(text, body, mark, literal if is_code else None, tags)
        if is_broken:
            literal = None  # no more of this, which would be quadratic
        stop, after = (end.start(), end.end()) if end else (len(text), len(text))
        while text[body : body + 1] in _BYTE_ORDER_MARKS and body < stop:
            body += 1
        info = word + remainder
        name = (
            _FILE_IN_INFO.search((info.partition(":")[2] or info)[:400])
            or _FILE_IN_COMMENT.match(text[body : min(stop, body + 400)])
            or _FILE_ABOVE.search(text[max(position, opening.start() - 200) : opening.start()])
        )
        start = opening.start(2)
        path = name[1] if name else None
        blocks.append(_Block(tag, text[body:stop], start, after, end is not None, path, body))
        position = after
    if blocks:
        return blocks
    for inline in islice(_INLINE_FENCE.finditer(text), _MAX_BLOCKS):
        words = inline[1].split(maxsplit=1)
        is_tagged = len(words) == 2 and _parse_tag(words[0]) in tags  # else the first word is code
        tag, code = (_parse_tag(words[0]), words[1]) if is_tagged else ("", inline[1])
        code_at = inline.end() - 3 - len(code)
        blocks.append(_Block(tag, code, inline.start(), inline.end(), True, code_at=code_at))
    return blocks


def _find_end(
    text: str, body: int, mark: str, literal: re.Pattern[str] | None, tags: Collection[str]
) -> tuple[re.Match[str] | None, bool]:
    """Return the end of a block that begins at `body`; and whether a literal or comment in it is
    not closed, so that such were not heeded."""
    closing = _compile_closing(mark[0], len(mark))
    first = text.find(mark, body)
    if first < 0:
        return None, False
    position = max(body, text.rfind("\n", body, first) + 1)
    read_to = body
    limit = len(text)
    late = None
    is_broken = False
    while True:
        end = closing.search(text, position, limit)
        if end is None:
            return late, is_broken
        is_late = end[1] is None
        if literal is None:
            if not is_late:
                return end, is_broken
            line = text[text.rfind("\n", body, end.start()) + 1 : end.start()]
            if late is None and not _COMMENT_LINE.match(line):
                late = end
                following = _INFO_FENCE.search(text, end.end())
                limit = following.start() if following else limit
            position = end.end()
            continue
        if not is_late and not _ANY_FENCE.search(text, end.end()):
            return end, is_broken
        last = deque(literal.finditer(text, read_to, end.start()), maxlen=1)
        if not last or last[0].end() < end.start():
            return end, is_broken
        enclosing = literal.match(text, last[0].start())  # what holds what looks like the end
        read_to = enclosing.end() if enclosing else len(text)
        if read_to <= end.start():
            return end, is_broken
        others = (_parse_tag(fence[3]) for fence in _FENCE.finditer(text, end.start(), read_to))
        if (not is_late and not closing.search(text, read_to)) or any(
            tag in tags for tag in others
        ):
            # never closed, or in another block
            literal = None
            is_broken = True
        else:
            position = read_to


def _parse_tag(word: str) -> str:
    """Return `rust` for `Rust`, `language:rust`, `language-rust`, `{.rust}`, `rust,ignore` and
    `rust:src/a.rs`."""
    tag = re.sub(r"^(?:language[:-]|lang-|\{\.?)", "", word.lower()).rstrip("}")
    return re.split("[,:]", tag)[0]
