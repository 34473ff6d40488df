"""Calls of an answer as a part of its crate: text of ours at its end, so that they cost no
compilation of their own.

The text makes the calls for the tests' process (`remote_answer`); a `main` that is compiled once
is linked with it. From there private parts of the answer can be called, too: an answer whose text
does not show that what is declared is public has its calls compiled as a crate of their own, and so
has one that does not compile with ours. Whatever an answer changes in the text is in its own
process and judges nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from services.graders.rust.answer import RustAnswer
from services.graders.rust.lexer import MAX_TOKENS, Kind, list_texts, tokens

_APART = ("gradus_", "macro_rules", "non_exhaustive", "panic_handler")
"""What can change who may use a name, which names there are, or, at linking only, the program."""


def can_append(answer: RustAnswer, methods: Collection[str]) -> bool:
    """Return whether calls may stand at the end of the answer. Raises TooManyTokens.

    `methods`: names of declared methods, which have to be public.
    """
    if any(word in text for word in _APART for text in answer.own_files.values()):
        return False
    for file_tokens in answer.tokens.values():
        words = list_texts(file_tokens)
        for at, word in enumerate(words[:-1]):
            if word == "fn" and words[at + 1] in methods:
                before = at - 2 if words[at - 1] == "const" else at - 1
                if words[before] != "pub":
                    return False
    return _ends_with_item(answer)


def _ends_with_item(answer: RustAnswer) -> bool:
    """Return whether no attribute or doc comment at the end would belong to text behind it."""
    for token in reversed(tokens(answer.files[answer.entry], answer.edition, MAX_TOKENS)):
        if token.kind is Kind.COMMENT and token.text.startswith(("///", "/**")):
            return False
        if token.kind not in (Kind.SPACE, Kind.COMMENT):
            return token.text in ("}", ";")
    return False
