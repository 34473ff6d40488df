"""How much of an answer checks: the share of its items without an error. Pure; compiles nothing.

rustc goes on after errors of names and types, so it has an opinion on every item; it stops at the first syntax error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.graders.rust.answer import RustAnswer
from services.graders.rust.compile import CompilerMessage
from services.graders.rust.signature import Signature

_SYNTAX = frozenset({None, "E0748", "E0758", "E0762", "E0763", "E0765", "E0766", "E0768"})
"""Codes of errors of the lexer; errors of the parser and of macros have none."""
_NO_CREDIT = frozenset({"use", "extern", ""})
"""Words of items that can be wrong and that nobody was asked for."""


def checked_share(
    answer: RustAnswer, signature: Signature | None, errors: Sequence[CompilerMessage], unfit: Iterable[str] = ()
) -> float:
    """Sound items in all that count, in [0, 1]; with a signature an item is sound only if it is declared there.

    `unfit`: declared names that are not what they were declared to be.
    """
    if any(error.code in _SYNTAX for error in errors):
        return 0.0
    declared = set(signature.names) if signature else None
    places = {(error.path, error.line) for error in errors}
    bad, sound = set(unfit), set()
    for path, found in answer.items.items():
        for number, item in enumerate(found):
            known_as = item.name if path == answer.entry and item.name else f"{path}#{number}"
            if any(place == path and item.first_line <= line <= item.last_line for place, line in places):
                bad.add(known_as)
            elif item.word not in _NO_CREDIT and (declared is None or known_as in declared):
                sound.add(known_as)
    sound -= bad
    missing = (declared or set()) - sound - bad
    total = len(sound) + len(bad) + len(missing)
    return len(sound) / total if total else 0.0
