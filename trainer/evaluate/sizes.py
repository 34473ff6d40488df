"""How much code answers have and how much they change, in lines.

Of a completion the code is what graders would take for the answer, but for their look at declared names: behind the
thoughts the last fenced block with an info string of the grader's, else the last without one, else the last, else all
of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trainer.evaluate.figures import Part, Quantiles, quantiles

Record = Mapping[str, Any]
_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^\n`]*+$")
_INLINE = re.compile(r"```([^\n`]++)```")


class Sizes(Part):
    """Lines of code, blank ones left out. Quantiles are over judged answers."""

    answer_lines: Quantiles | None
    """Of the answer."""
    changed_lines: Quantiles | None
    """Between the task's `stub` and the answer; None where no task has one."""


def sizes_of(verdicts: Sequence[Record], fences: Collection[str]) -> Sizes | None:
    """The figures of judged answers; None where answers are no code, which has no `fences`."""
    if not fences:
        return None
    codes = [(code_of(str(record["completion"]), fences), record.get("stub")) for record in verdicts]
    changes = [changed_lines(stub, code) for code, stub in codes if isinstance(stub, str)]
    return Sizes(answer_lines=quantiles([len(_lines(code)) for code, _ in codes]), changed_lines=quantiles(changes))


def changed_lines(before: str, after: str) -> int:
    """How many lines either has that the other has not, as a diff counts them; blank lines and indents do not count.

    Lines are compared as a bag: one that only moved is no change. It takes time by the length, whatever the texts are.
    """
    old, new = Counter(_lines(before)), Counter(_lines(after))
    return (old - new).total() + (new - old).total()


def _lines(code: str) -> list[str]:
    return [line for text in code.split("\n") if (line := text.strip())]


def code_of(completion: str, fences: Collection[str]) -> str:
    """The code of a completion; `fences` are the info strings of the grader's blocks."""
    before, mark, after = completion.replace("\r\n", "\n").rpartition("</think>")
    visible = after if mark else (before + after).partition("<think>")[0]
    blocks = _blocks(visible, fences)
    if not blocks:
        return visible.strip()
    written = [block for block in blocks if block[1].strip()] or blocks
    tagged = [text for tag, text in written if tag in fences]
    bare = [text for tag, text in written if not tag]
    return (tagged or bare or [text for _, text in written])[-1]


def _blocks(text: str, fences: Collection[str]) -> list[tuple[str, str]]:
    """(tag, text) of each fenced block; the last may lack its end."""
    found: list[tuple[str, str]] = []
    fence, tag, inside = "", "", list[str]()
    for line in text.split("\n"):
        if not fence:
            if opening := _FENCE.match(line):
                fence, tag, inside = opening[1], _tag(opening[2]), []
        elif len(end := line.strip(" \t")) >= len(fence) and not end.strip(fence[0]):
            found.append((tag, "\n".join(inside)))
            fence = ""
        else:
            inside.append(line)
    if fence:
        return [*found, (tag, "\n".join(inside))]
    return found or [_inline(code, fences) for code in _INLINE.findall(text)]


def _inline(code: str, fences: Collection[str]) -> tuple[str, str]:
    word, _, rest = code.partition(" ")
    return (_tag(word), rest) if rest and _tag(word) in fences else ("", code)


def _tag(word: str) -> str:
    return re.split("[,:]", word.lower().removeprefix("language:").removeprefix("{.").rstrip("}"))[0]
