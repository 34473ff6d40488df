"""Which of several blocks of code make one program, or files of one. docs/extraction.md states the
rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import dedent

_WORD = re.compile(r"[^\W\d][\w']*+|[!$%&*+\-./:<=>?@^|~]++")


@dataclass(frozen=True, slots=True)
class Syntax:
    """What extraction knows of a language."""

    literal: re.Pattern[str]
    """Matches a comment or a literal; one that is not closed, to the end."""
    definitions: Callable[[str], Collection[str]]
    """Names that code defines at its top level. A name of several words is found by each of
    them."""


@dataclass(frozen=True, slots=True)
class Layout:
    entry: str
    """The file that a block without a name is."""
    path: re.Pattern[str]
    """Matches the whole of an acceptable path."""
    folder: str
    """Where a name without a folder belongs, for example `src/`."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Path -> text of the task's own files, which stay where the answer has none of the path."""

    def resolve_path(self, name: str) -> str | None:
        """Return the path that `name` means; None when it is no file of the layout."""
        name = name.removeprefix("./")
        path = name if "/" in name else self.folder + name
        return path if self.path.fullmatch(path) else None


def select_blocks(
    blocks: Sequence[str], needed: Collection[str], definitions: Callable[[str], Collection[str]]
) -> Sequence[int]:
    """Return indices of the blocks that define needed names last, and of those that define what
    these mention, in the order in which they compile. Empty when no block defines a needed name."""
    texts = [dedent(block) for block in blocks]
    defined = [set(definitions(text)) for text in texts]
    homes: dict[str, set[int]] = {}
    """Word -> the last blocks that define names with it. A word is looked up once, so that the cost
    stays linear."""
    for name, home in {name: at for at, names in enumerate(defined) for name in names}.items():
        for word in _WORD.findall(name):
            homes.setdefault(word, set()).add(home)
    have: set[str] = set()
    places: dict[int, tuple[int, int, int]] = {}
    """Block -> sort key: a helper stands where it stood, or in front of its user if it came
    later."""
    defining_blocks = set()
    for name in needed:
        for word in _WORD.findall(name):
            for home in homes.pop(word, ()):
                defining_blocks.add(home)
    for at in sorted(defining_blocks, reverse=True):
        if have.isdisjoint(defined[at]):  # else an earlier draft of the same
            have |= defined[at]
            places[at] = (at, 0, at)
    users = list(places)
    tried = defining_blocks
    answered = frozenset(have)
    while users:
        user = users.pop()
        mentioned = {home for word in _WORD.findall(texts[user]) for home in homes.pop(word, ())}
        for at in sorted(mentioned - tried):
            tried.add(at)
            is_example = any(
                word in answered and not word[0].isupper() for word in _WORD.findall(texts[at])
            )
            if not is_example and have.isdisjoint(defined[at]):
                have |= defined[at]
                places[at] = (min(at, places[user][0]), places[user][1] - 1, at)
                users.append(at)
    return sorted(places, key=places.__getitem__)
