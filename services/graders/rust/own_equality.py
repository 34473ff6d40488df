"""`PartialEq` written by hand, which could call anything equal to what tests expect. The compiler
says where it stands.

Two lints of clippy name every hand-written implementation, whatever its text looks like:
`missing_trait_methods` those without `ne`, `partialeq_ne_impl` those with it. Derived ones have
neither. An implementation may stay if the task's signature declares it, or if tests can never
compare what it compares: its type is private and part of no other type.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from services.graders.rust.lexer import BEFORE_FUNCTION, Kind, Token, compute_group_ends

LINTS = ("clippy::missing_trait_methods", "clippy::partialeq_ne_impl")
_TELLING = (b"`ne`", b"PartialEq::ne", b"`__iterator_get_unchecked`")
"""Methods by which messages of the first lint are told apart."""
_COMPARING = frozenset({"PartialEq", "Eq", "PartialOrd", "Ord"})
_TYPES = frozenset({"struct", "enum", "union"})
_ITEMS = _TYPES | {"trait", "type", "use", "fn", "const", "static", "mod", "impl"}
_KEYWORDS = frozenset({"if", "while", "match", "return", "in", "break", "else", "fn", "let"})
"""Words before a `!` that means `not`."""
_EXPRESSION_MACROS = frozenset(
    (
        *(
            "assert",
            "assert_eq",
            "assert_ne",
            "dbg",
            "debug_assert",
            "debug_assert_eq",
            "debug_assert_ne",
            "eprint",
        ),
        *(
            "eprintln",
            "format",
            "matches",
            "panic",
            "print",
            "println",
            "todo",
            "unimplemented",
            "unreachable",
            "vec",
        ),
        *("write", "writeln"),
    )
)
_CANDIDATES = 8
"""Types of one answer that are looked at for whether they are private; an answer with more is
refused."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an implementation starts."""

    path: str
    line: int
    column: int
    """In characters, 1-based."""
    by_macro: bool


def read_places(messages: bytes, crate: str) -> list[Place]:
    """Return the implementations that the lints name in `messages`, the compiler's JSON. `crate`:
    the crate's folder."""
    counts: Counter[Place] = Counter()
    iterators: Counter[Place] = Counter()
    for line in messages.splitlines():
        if not any(lint.encode() in line for lint in LINTS) or not any(
            method in line for method in _TELLING
        ):
            continue
        message = json.loads(line)
        if (message.get("code") or {}).get("code") not in LINTS or not message["spans"]:
            continue
        span = next(span for span in message["spans"] if span["is_primary"])
        if any(
            child_span["file_name"].startswith(crate)
            for child in message["children"]
            for child_span in child["spans"]
        ):
            continue  # a trait of the answer's own that has a method of this name
        by_macro = span["expansion"] is not None or not span["file_name"].startswith(crate)
        path = span["file_name"].removeprefix(f"{crate}/")
        place = Place(path, span["line_start"], span["column_start"], by_macro)
        (iterators if "`__iterator" in message["message"] else counts)[place] += 1
    # `Iterator` has a method `ne`, too, and one that no answer can write
    return [place for place, times in counts.items() if place.by_macro or times > iterators[place]]


def find_refused_places(
    candidates: Collection[Place], tokens: Mapping[str, Sequence[Token]], declared: Collection[str]
) -> Iterator[Place]:
    """Yield the implementations that an answer may not have. `declared`: types whose equality the
    task asks for."""
    if not candidates:
        return
    privacy = _Privacy([*tokens.values()])
    heads: dict[tuple[str, int], list[int]] = {}
    """Where `impl` stands, by file and line."""
    for path, file_tokens in tokens.items():
        for at, token in enumerate(file_tokens):
            if token.text == "impl":
                heads.setdefault((path, token.line), []).append(at)
    for place in candidates:
        starts = heads.get((place.path, place.line), [])
        name = None
        if len(starts) == 1 and not place.by_macro:
            name = _find_compared_type(tokens[place.path], starts[0])
        if name is None or (name not in declared and not privacy.is_private(name)):
            yield place


def _find_compared_type(tokens: Sequence[Token], at: int) -> str | None:
    """`T` of `impl PartialEq for T` at `at`; None if anything else stands there."""
    end = next((n for n in range(at, len(tokens)) if tokens[n].text in ("{", ";")), len(tokens))
    words = [token.text for token in tokens[at:end]]
    if "for" not in words:
        return None
    middle = len(words) - 1 - words[::-1].index("for")
    trait = words[1:middle]
    target = words[middle + 1 :]
    if "PartialEq" not in trait or not target:
        return None
    arguments = trait[trait.index("PartialEq") + 1 :]
    target = target[: target.index("where")] if "where" in target else target
    return (
        target[0]
        if arguments in ([], ["<", "Self", ">"], ["<", *target, ">"]) and target[0].isidentifier()
        else None
    )


class _Privacy:
    """Which types of an answer no test can come to compare. `files`: its tokens, which the compiler
    accepts."""

    def __init__(self, files: Sequence[Sequence[Token]]) -> None:
        self._files = [(tokens, compute_group_ends(tokens)) for tokens in files]
        words = (
            (first.text, second.text)
            for tokens, _ in self._files
            for first, second in pairwise(tokens)
        )
        self._reexports = ("pub", "use") in words
        self._renamed = any(_has_renamed_comparison(tokens) for tokens in files)
        self._is_private_by_name: dict[str, bool] = {}

    def is_private(self, name: str) -> bool:
        """Return whether the type `name` is private, and no other type, alias, trait, import, macro
        or public function names it, but for types that are private themselves, and private fields
        of types that are not compared.

        What is not understood is not private.
        """
        if name not in self._is_private_by_name:
            self._is_private_by_name[name] = (
                len(self._is_private_by_name) < _CANDIDATES
            )  # a type may name itself by way of others
            self._is_private_by_name[name] = self._is_private_by_name[name] and all(
                self._is_private_in(*file, name) for file in self._files
            )
        return self._is_private_by_name[name]

    def _is_private_in(self, tokens: Sequence[Token], group_ends: Sequence[int], name: str) -> bool:
        own_impl_until = private_until = depth = at = 0
        while at < len(tokens):
            token = tokens[at]
            following = tokens[at + 1] if at + 1 < len(tokens) else None
            depth += (token.text == "{") - (token.text == "}") if token.kind is Kind.SIGN else 0
            if token.kind is not Kind.NAME or following is None:
                at += 1
            elif following.text == "!" and token.text not in _KEYWORDS:
                opening = next(
                    (n for n in range(at, min(at + 4, len(tokens))) if group_ends[n] > n + 1),
                    at + 1,
                )
                words = {inner.text for inner in tokens[opening : group_ends[opening]]}
                if name in words and (token.text not in _EXPRESSION_MACROS or words & _ITEMS):
                    return False
                at = group_ends[opening]
            elif token.text in _ITEMS and following.kind is not Kind.SIGN or token.text == "impl":
                end = _find_head_end(tokens, group_ends, at)
                head = tokens[at:end]
                public = _is_public(tokens, at) and at >= private_until
                if token.text == "type" and not depth and not public and following.text != name:
                    if _has_name(head, name) and not self.is_private(following.text):
                        return False
                elif token.text in _TYPES and following.text != name:
                    definition = tokens[at : group_ends[end]] if end < len(tokens) else head
                    hidden = token.text == "struct" and not any(
                        inner.text == "pub" for inner in definition
                    )
                    hidden = (
                        hidden
                        and not self._renamed
                        and _COMPARING.isdisjoint(_collect_attributes(tokens, at))
                    )
                    if (
                        _has_name(definition, name)
                        and not hidden
                        and not self.is_private(following.text)
                    ):
                        return False
                elif not _is_head_private(head, name, public and at >= own_impl_until):
                    return False
                if token.text == "trait" and _has_name(
                    tokens[at : group_ends[min(end, len(tokens) - 1)]], name
                ):
                    return False
                if token.text == "impl" and _find_self_type(head) == name and end < len(tokens):
                    own_impl_until = max(own_impl_until, group_ends[end])
                if token.text == "mod" and not public and not self._reexports and end < len(tokens):
                    private_until = max(private_until, group_ends[end])
                at += 1
            else:
                at += 1
        return True


def _has_renamed_comparison(tokens: Sequence[Token]) -> bool:
    """Return whether an import gives `PartialEq` or the like, and so its derive, another name."""
    imported: set[str] | None = None
    for token in tokens:
        if token.text == "use":
            imported = set()
        elif token.text == ";" and imported is not None:
            if "as" in imported and imported & _COMPARING:
                return True
            imported = None
        elif imported is not None:
            imported.add(token.text)
    return False


def _is_public(tokens: Sequence[Token], at: int) -> bool:
    """Return whether the item whose word stands at `at` is `pub`, and not `pub(crate)` or the
    like."""
    while at and (tokens[at - 1].text in BEFORE_FUNCTION or tokens[at - 1].kind is Kind.TEXT):
        at -= 1
    return at > 0 and tokens[at - 1].text == "pub"


def _collect_attributes(tokens: Sequence[Token], at: int) -> set[str]:
    """Return the words between the item before and the one at `at`."""
    start = at
    while start and tokens[start - 1].text not in (";", "{", "}"):
        start -= 1
    return {token.text for token in tokens[start:at]}


def _is_head_private(head: Sequence[Token], name: str, public: bool) -> bool:
    """As for a file, for the head of one item, up to its braces or its semicolon."""
    words = [token.text for token in head]
    match words[0]:
        case "struct" | "enum" | "union":
            return not public if words[1] == name else name not in words
        case "trait":
            return name not in words and not _COMPARING.intersection(words)
        case "type":
            return not public if words[1] == name else name not in words
        case "use":
            return name not in words or not (public or "as" in words)
        case "impl":
            return (
                name not in words
                or _find_self_type(head) == name
                or (_find_self_type(head) != "" and name not in _find_impl_type(words))
            )
        case "fn" | "const" | "static" | "mod":
            arrow = next(
                (n for n in range(len(words) - 1) if words[n : n + 2] == ["-", ">"]), len(words)
            )
            gives = set(words[arrow:])
            opaque = gives & {"impl", "dyn"} and gives & _COMPARING
            return not opaque and not (public and name in words)
    return True


def _find_impl_type(words: Sequence[str]) -> Sequence[str]:
    """Return the type of an `impl`'s head, or all of one that is not understood."""
    return words[len(words) - words[::-1].index("for") :] if "for" in words else words


def _find_self_type(head: Sequence[Token]) -> str:
    """`T` of `impl<A> T<A>` and of `impl<A> Trait for T<A>`."""
    words = [token.text for token in head]
    if "for" in words:
        type_words = _find_impl_type(words)
        return type_words[0] if type_words else ""
    depth = 0
    for word in words[1:]:
        depth += {"<": 1, ">": -1}.get(word, 0)
        if depth == 0 and word.isidentifier():
            return word
    return ""


def _find_head_end(tokens: Sequence[Token], group_ends: Sequence[int], at: int) -> int:
    """Return where the head of the item that starts at `at` ends: before its braces or its
    semicolon."""
    while at < len(tokens) and tokens[at].text not in ("{", ";", "}"):
        at = group_ends[at]
    return min(at, len(tokens))


def _has_name(part: Sequence[Token], name: str) -> bool:
    return any(token.kind is Kind.NAME and token.text == name for token in part)
