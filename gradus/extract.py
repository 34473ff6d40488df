"""Completion -> answer: which part of what the model wrote is the code. docs/extraction.md states
the rules.

An answer is one program text. It depends on the completion and on names that the task gives, never
on a verdict, and costs time linear in the completion.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from gradus.code_blocks import Layout, Syntax, select_blocks

# Quantifiers are possessive (`*+`): with backtracking, one long line of spaces would take hours.
_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)([^\n`]*+)$", re.MULTILINE)
_INLINE_FENCE = re.compile(r"```([^\n`]++)```")
_NAME_IN_INFO = re.compile(
    r"(?:^|[\s,{])(?:\w+=)?[\"']?([^\s\"'={},]{1,200}\.\w{1,16})[\"']?(?=$|[\s,}])"
)
_NAME_IN_COMMENT = re.compile(
    r"\s*//[ \t]*(?:[Ff]ile(?:name)?:?[ \t]*)?`?([^\s`]+\.\w+)`?:?[ \t]*(?:\n|\Z)"
)
_ANY_FENCE = re.compile("```|~~~")
_MAX_BLOCKS = 1000
"""What stands behind so many is prose. A bound of the cost: 1 MB of fences is no answer."""
_TURN_END = r"(?:<[|\uff5c][^\s<>]{1,40}>|</s>|<eos>|<end_of_turn>)"
_END = r"^[ \t]*+{}{{{},}}+(?:[ \t]*+{})*+[^\S\n]*+$"
_closing = lru_cache(
    lambda mark, length: re.compile(_END.format(mark, length, _TURN_END), re.MULTILINE)
)
_TAG_BEFORE_FENCE = re.compile(r"(</think>|<[|]message[|]>)[ \t]*+(?=```|~~~)")
_LAST_TURN_ENDS = re.compile(rf"(?:{_TURN_END}\s{{0,9}}+){{1,9}}+\s*+\Z")


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
    text = completion.removeprefix("\ufeff").replace("\r\n", "\n")
    text = (
        _LAST_TURN_ENDS.sub("", text) if text.rstrip().endswith(">") else text
    )  # which costs less than looking
    text = (
        _TAG_BEFORE_FENCE.sub(r"\1\n", text)
        if "</think>" in text or "<|message|>" in text
        else text
    )
    masked = text
    if (
        syntax and "think>" in text
    ):  # tags in comments and literals of the answer's code are no thinking
        parts = []
        at = 0
        for block in _find_blocks(text, tags, syntax):
            if block.tag in tags:
                code = syntax.literal.sub(
                    lambda match: match[0].replace("think>", "think)"), block.text
                )
                parts += [text[at : block.code_at], code]
                at = block.code_at + len(code)
        masked = "".join((*parts, text[at:]))
    visible = remove_thinking(text, masked)
    flags = ["extract:unclosed_think"] if "</think>" not in masked and "<think>" in masked else []
    blocks = _find_blocks(visible, tags, syntax)
    if not blocks:
        return Answer(visible.strip(), flags=tuple(flags))
    named = (
        [block for block in blocks if block.name and block.tag in tags]
        if layout and len(blocks) > 1
        else []
    )
    unnamed = [block for block in blocks if block not in named]
    files = {layout.resolve_path(block.name or ""): block for block in named} if layout else {}
    if files.pop(None, None):
        flags.append("extract:ignored_file")
    entry = files.pop(layout.entry, None) if layout else None
    if entry is None:
        non_empty = [block for block in unnamed or blocks if block.text.strip()]
        tagged = [block for block in non_empty if block.tag in tags]
        candidates = (
            tagged
            or [block for block in non_empty if not block.tag]
            or non_empty
            or unnamed
            or blocks
        )
        texts = [block.text for block in candidates] if syntax and len(candidates) > 1 else []
        chosen = (
            [candidates[at] for at in select_blocks(texts, needed(), syntax.definitions)]
            if syntax and texts
            else []
        )
        chosen = chosen or candidates[-1:]
    else:
        chosen = [entry]
    if not all(block.closed for block in (*chosen, *files.values())):
        flags.append("extract:unclosed_fence")
    outside = []
    position = 0
    for block in blocks:
        outside.append(visible[position : block.start].strip())
        position = block.end
    outside.append(visible[position:].strip())
    return Answer(
        text="\n".join(block.text.strip("\n") for block in chosen),
        blocks=len(blocks) - max(0, len(named) - 1) - (len(chosen) - 1),
        prose_chars=sum(map(len, outside)),
        trailing_chars=len(outside[-1]),
        flags=tuple(flags),
        files={path: block.text for path, block in files.items() if path},
    )


def remove_thinking(completion: str, masked: str | None = None) -> str:
    """Return the text behind the last `</think>`; where thoughts do not end, the text before them.
    `masked`: the completion without the tags that do not count, of the same length."""
    before, mark, after = (masked or completion).rpartition("</think>")
    return (
        completion[len(before) + len(mark) :]
        if mark
        else completion[: len(after.partition("<think>")[0])]
    )


def _find_blocks(text: str, tags: Collection[str], syntax: Syntax | None) -> list[_Block]:
    blocks: list[_Block] = []
    position = 0
    literal = syntax.literal if syntax else None
    while len(blocks) < _MAX_BLOCKS and (opening := _FENCE.search(text, position)):
        body = opening.end() + 1
        tag = _parse_tag(opening[2])
        info = opening[2] + opening[3]
        closing = _closing(opening[1][0], len(opening[1]))
        line = text.rfind("\n", 0, text.find(opening[1], body) + 1) + 1  # not before this one
        end = closing.search(text, max(line, min(body, len(text))))
        at = body
        while literal and end and (not tag or tag in tags) and _ANY_FENCE.search(text, end.end()):
            before = deque(literal.finditer(text, at, end.start()), maxlen=1)
            if not before or before[0].end() < end.start():
                break
            enclosing = literal.match(
                text, before[0].start()
            )  # what holds the line that looks like the end
            at = enclosing.end() if enclosing else len(text)
            following = closing.search(text, at)
            if not following or any(
                _parse_tag(other[2]) in tags for other in _FENCE.finditer(text, end.start(), at)
            ):
                # never closed, or in another block: no more of this, which would be quadratic
                literal = None
            else:
                end = following
        stop, after = (end.start(), end.end()) if end else (len(text), len(text))
        name = _NAME_IN_INFO.search(
            (info.partition(":")[2] or info)[:400]
        ) or _NAME_IN_COMMENT.match(text[body:stop])
        path = name[1] if name else None
        blocks.append(
            _Block(tag, text[body:stop], opening.start(), after, end is not None, path, body)
        )
        position = after
    if blocks:
        return blocks
    for inline in islice(_INLINE_FENCE.finditer(text), _MAX_BLOCKS):
        words = inline[1].split(maxsplit=1)
        tagged = len(words) == 2 and _parse_tag(words[0]) in tags  # else the first word is code
        tag, code = (_parse_tag(words[0]), words[1]) if tagged else ("", inline[1])
        blocks.append(
            _Block(
                tag,
                code,
                inline.start(),
                inline.end(),
                closed=True,
                code_at=inline.end() - 3 - len(code),
            )
        )
    return blocks


def _parse_tag(word: str) -> str:
    """`rust` of `Rust`, `language:rust`, `{.rust}`, `rust,ignore` and `rust:src/a.rs`."""
    return re.split("[,:]", word.lower().removeprefix("language:").removeprefix("{.").rstrip("}"))[
        0
    ]
