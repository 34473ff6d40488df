"""Completion -> answer: which part of what the model wrote is the code. Pure; never looks at the prompt.

The rule, in order: what stands before the last `</think>` is thinking, not answer. Among fenced blocks, those tagged
with the language count if there are any, else the untagged ones; of these the last that defines a name which the task
declares, else the last. Without any fence the whole text is the answer. A fence that is never closed runs to the end.

Where an answer may have several files (`Layout`), a block can say which one it is: behind its tag (`rust src/a.rs`,
`rust:src/a.rs`, `rust title="src/a.rs"`) or in a comment on its first line (`// src/a.rs`). The last block of a name
counts. Names that are no file of the layout are left out and flagged; nothing is ever written where a name says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

# Quantifiers are possessive (`*+`): with backtracking, one long line of spaces would take hours.
_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)([^\n`]*+)$", re.MULTILINE)
_INLINE_FENCE = re.compile(r"```([^\n`]++)```")
_NAME_IN_INFO = re.compile(r"(?:^|[\s,{])(?:\w+=)?[\"']?([^\s\"'={},]{1,200}\.\w{1,16})[\"']?(?=$|[\s,}])")
_NAME_IN_COMMENT = re.compile(r"\s*//[ \t]*(?:[Ff]ile(?:name)?:?[ \t]*)?`?([^\s`]+\.\w+)`?:?[ \t]*(?:\n|\Z)")


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
    files: Mapping[str, str] = field(default_factory=dict)
    """Beside `text`: path -> text of the blocks that name a file of the layout."""


@dataclass(frozen=True, slots=True)
class Layout:
    entry: str
    """The file that a block without a name is."""
    path: re.Pattern[str]
    """Matches the whole of an acceptable path."""
    folder: str
    """Where a name without a folder belongs, for example `src/`."""

    def path_of(self, name: str) -> str | None:
        """The path that `name` means; None when it is no file of the layout."""
        name = name.removeprefix("./")
        path = name if "/" in name else self.folder + name
        return path if self.path.fullmatch(path) else None


@dataclass(frozen=True, slots=True)
class _Block:
    tag: str
    text: str
    start: int
    end: int
    closed: bool
    name: str | None = None
    """The file that it says it is."""


def extract(
    completion: str,
    tags: Collection[str],
    defines: re.Pattern[str] | None = None,
    layout: Layout | None = None,
) -> Answer:
    """The answer in `completion`.

    `tags`: language tags, lower case. `defines`: matches code that defines a name which the task declares.
    `layout`: None for answers that are one file, whatever blocks are called.
    """
    _, thought, visible = completion.replace("\r\n", "\n").rpartition("</think>")
    flags: list[str] = []
    if not thought and "<think>" in visible:
        visible, flags = visible.partition("<think>")[0], ["extract:unclosed_think"]
    blocks = _blocks(visible, tags)
    if not blocks:
        return Answer(visible.strip(), flags=tuple(flags))
    named = [block for block in blocks if block.name and block.tag in tags] if layout and len(blocks) > 1 else []
    starts_of_named = {block.start for block in named}
    rest = [block for block in blocks if block.start not in starts_of_named]
    files = {layout.path_of(block.name or ""): block for block in named} if layout else {}
    if files.pop(None, None):
        flags.append("extract:ignored_file")
    chosen = files.pop(layout.entry, None) if layout else None
    if chosen is None:
        written = [block for block in rest or blocks if block.text.strip()]
        tagged = [block for block in written if block.tag in tags]
        candidates = tagged or [block for block in written if not block.tag] or written or rest or blocks
        chosen = ([block for block in candidates if defines and defines.search(block.text)] or candidates)[-1]
    if not all(block.closed for block in (chosen, *files.values())):
        flags.append("extract:unclosed_fence")
    starts, ends = [0, *(block.end for block in blocks)], [*(block.start for block in blocks), len(visible)]
    outside = [visible[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    return Answer(
        text=chosen.text.strip("\n"),
        blocks=len(blocks) - max(0, len(named) - 1),
        prose_chars=sum(map(len, outside)),
        trailing_chars=len(outside[-1]),
        flags=tuple(flags),
        files={path: block.text for path, block in files.items() if path},
    )


def _blocks(text: str, tags: Collection[str]) -> list[_Block]:
    found: list[_Block] = []
    position = 0
    while opening := _FENCE.search(text, position):
        body = opening.end() + 1
        closing = re.compile(rf"^[ \t]*{re.escape(opening[1][0])}{{{len(opening[1])},}}[ \t]*$", re.MULTILINE)
        end = closing.search(text, min(body, len(text)))
        stop, after = (end.start(), end.end()) if end else (len(text), len(text))
        info = opening[2] + opening[3]
        name = _NAME_IN_INFO.search((info.partition(":")[2] or info)[:400]) or _NAME_IN_COMMENT.match(text[body:stop])
        found.append(
            _Block(
                _tag(opening[2]), text[body:stop], opening.start(), after, end is not None, name[1] if name else None
            )
        )
        position = after
    if found:
        return found
    for inline in _INLINE_FENCE.finditer(text):
        words = inline[1].split(maxsplit=1)
        tagged = len(words) == 2 and _tag(words[0]) in tags  # else the first word is code
        tag, code = (_tag(words[0]), words[1]) if tagged else ("", inline[1])
        found.append(_Block(tag, code, inline.start(), inline.end(), closed=True))
    return found


def _tag(word: str) -> str:
    """`rust` of `Rust`, `language:rust`, `{.rust}`, `rust,ignore` and `rust:src/a.rs`."""
    return re.split("[,:]", word.lower().removeprefix("language:").removeprefix("{.").rstrip("}"))[0]
