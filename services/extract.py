"""Completion -> answer: which part of what the model wrote is the code. Pure; never looks at the prompt.

The rule, in order: what stands before the last `</think>` is thinking, not answer. Among fenced blocks, those tagged
with the language count if there are any, else the untagged ones; of these the last that defines a name which the task
declares, else the last. Without any fence the whole text is the answer. A fence that is never closed runs to the end.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

# Quantifiers are possessive (`*+`): with backtracking, one long line of spaces would take hours.
_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^\n`]*+$", re.MULTILINE)
_INLINE_FENCE = re.compile(r"```([^\n`]++)```")


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    blocks: int = 0
    """Fenced blocks in the completion; 0 when it had none and was taken whole."""
    prose_chars: int = 0
    """Characters outside of all blocks, thinking and white space at the ends left out."""
    trailing_chars: int = 0
    """Of these, behind the last block."""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Block:
    tag: str
    text: str
    start: int
    end: int
    closed: bool


def extract(completion: str, tags: Collection[str], defines: re.Pattern[str] | None = None) -> Answer:
    """The answer in `completion`.

    `tags`: language tags, lower case. `defines`: matches code that defines a name which the task declares.
    """
    visible, flags = _after_thinking(completion.replace("\r\n", "\n"))
    blocks = _blocks(visible, tags)
    if not blocks:
        return Answer(visible.strip(), flags=tuple(flags))
    chosen = _choose(blocks, tags, defines)
    if not chosen.closed:
        flags.append("extract:unclosed_fence")
    outside = [visible[a:b].strip() for a, b in _gaps(blocks, len(visible))]
    return Answer(
        text=chosen.text.strip("\n"),
        blocks=len(blocks),
        prose_chars=sum(map(len, outside)),
        trailing_chars=len(outside[-1]),
        flags=tuple(flags),
    )


def _after_thinking(completion: str) -> tuple[str, list[str]]:
    before, mark, after = completion.rpartition("</think>")
    if mark:
        return after, []
    if "<think>" in completion:
        return completion.partition("<think>")[0], ["extract:unclosed_think"]
    return after, []


def _blocks(text: str, tags: Collection[str]) -> list[_Block]:
    found: list[_Block] = []
    position = 0
    while opening := _FENCE.search(text, position):
        body = opening.end() + 1
        closing = re.compile(rf"^[ \t]*{re.escape(opening[1][0])}{{{len(opening[1])},}}[ \t]*$", re.MULTILINE)
        end = closing.search(text, min(body, len(text)))
        stop, after = (end.start(), end.end()) if end else (len(text), len(text))
        found.append(_Block(_tag(opening[2]), text[body:stop], opening.start(), after, end is not None))
        position = after
    return found or [_inline(match, tags) for match in _INLINE_FENCE.finditer(text)]


def _inline(match: re.Match[str], tags: Collection[str]) -> _Block:
    words = match[1].split(maxsplit=1)
    tagged = len(words) == 2 and _tag(words[0]) in tags  # else the first word is code
    tag, text = (_tag(words[0]), words[1]) if tagged else ("", match[1])
    return _Block(tag, text, match.start(), match.end(), closed=True)


def _tag(word: str) -> str:
    return word.lower().removeprefix("language:").removeprefix("{.").rstrip("}")


def _choose(blocks: Sequence[_Block], tags: Collection[str], defines: re.Pattern[str] | None) -> _Block:
    written = [block for block in blocks if block.text.strip()]
    tagged = [block for block in written if block.tag in tags]
    candidates = tagged or [block for block in written if not block.tag] or written or list(blocks)
    fitting = [block for block in candidates if defines and defines.search(block.text)]
    return (fitting or candidates)[-1]


def _gaps(blocks: Sequence[_Block], length: int) -> list[tuple[int, int]]:
    starts = [0, *(block.end for block in blocks)]
    ends = [*(block.start for block in blocks), length]
    return list(zip(starts, ends, strict=True))
