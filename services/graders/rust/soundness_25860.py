"""A known hole of the borrow checker (rust-lang/rust#25860), recognised by its shape. Proves
nothing about others.

A function may take for granted that one lifetime outlives another because a type in its signature
needs that (`&'a &'b ()`). As a function *pointer* it forgets the condition, and then hands out
references to what is gone: safe code that can write any memory, the harness's too. Answers that use
such a function as a value are refused; writing the bound (`'b: 'a`) closes the hole and is allowed.
Functions that a macro names are read where the macro holds all of their heads, and refused where it
does not; one whose tokens are put together in yet other ways is not recognised. Two more holes are
refused by the one shape that is known of each: rust-lang/rust#100051 (projections with nested
lifetimes) and #84366 (closures that return a named lifetime).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from services.graders.rust.lexer import Kind, Token, ends_of_groups, macro_bodies
from services.graders.rust.signature import Function

_LONGEST_HEAD = 400
"""Tokens of a function's head that are looked at. A longer one counts as taking a bound for
granted."""
_MOST_LIFETIMES = 8
"""Lifetimes of a function that are looked at. One with more counts as taking a bound for
granted."""
_CALLED = frozenset({"fn", "Fn", "FnMut", "FnOnce", "dyn", "impl"})
"""Words of types that may take arguments."""
_FREE = frozenset({"'static", "'_"})
"""Lifetimes that are no parameters."""


def assumed_bounds(found: Sequence[Token]) -> Iterator[Token]:
    """Where an answer may take a bound between lifetimes for granted.

    The name of every function that does so and is used as a value, and the two other shapes of the
    module's text.
    """
    generic = [
        at
        for at, token in enumerate(found[:-2])
        if token.text == "fn" and found[at + 2].text == "<"
    ]
    behind = ends_of_groups(found) if generic else []
    risky: dict[str, Token] = {}
    left = 2 * len(found)  # heads overlap in texts that are no Rust only
    for at in generic:
        head = found[at : _end_of_head(found, behind, at)]
        left -= len(head)
        if len(head) > _LONGEST_HEAD or left < 0:
            yield found[at]
            return
        if _takes_for_granted(Function.read(head)):
            risky.setdefault(found[at + 1].text, found[at + 1])
    values = _values(found, behind, set(risky)) if risky else set()
    yield from (token for name, token in risky.items() if name in values)
    named = _lifetimes(found) - _FREE
    if len(named) > 1:
        for body in macro_bodies(found):
            yield from _made_by_a_macro(body)
        yield from _of_projections(found)
    if named:
        yield from _of_closures(found)


def _end_of_head(found: Sequence[Token], behind: Sequence[int], at: int) -> int:
    """Behind the head of the function that starts at `at`, or behind as much of it as is looked
    at."""
    start = at
    while at < len(found) and at - start <= _LONGEST_HEAD and found[at].text not in ("{", ";", "}"):
        at = behind[at]
    return min(at, len(found), start + _LONGEST_HEAD + 1)


def _takes_for_granted(function: Function) -> bool:
    """Parts of the head imply a bound `long: short`, and something with `long` may end up where
    `short` is due.

    That is the result, or what a parameter refers to or holds. Lifetimes with a bound of their own
    are checked by the compiler wherever the function is used.
    """
    lifetimes = {
        part[0].text
        for part in function.generics
        if part[0].kind is Kind.LIFETIME and len(part) == 1
    }
    bounds = [part for part in function.generics if len(part) > 1]
    free = lifetimes.difference(_lifetimes(function.where), *map(_lifetimes, bounds))
    if len(free) > _MOST_LIFETIMES:
        return True
    inside = [part[2:] if part[:1] and part[0].text == "&" else part for part in function.takes]
    due = set().union(_lifetimes(function.gives), *map(_lifetimes, inside))
    of_result = _implied_bounds(function.gives, free)
    takes_more = any(token.text in _CALLED for token in function.gives)
    implied = of_result.union(*(_implied_bounds(part, free) for part in function.takes))
    for short, long in implied:
        if short in due and (
            (takes_more and long in _lifetimes(function.gives))
            or {(short, long), (long, short)} <= of_result
            or any(_takes_other(part, short, long) for part in function.takes)
        ):
            return True
    return False


def _takes_other(part: Sequence[Token], short: str, long: str) -> bool:
    """The parameter has `long`, and is no reference of `short`."""
    return long in _lifetimes(part) and [one.text for one in part[:2]] != ["&", short]


def _implied_bounds(part: Sequence[Token], free: set[str]) -> set[tuple[str, str]]:
    """`(short, long)` for each bound `long: short` that the type may need: `&'short Some<'long>`,
    and between the lifetimes of one path, `Some<'a, 'b>`, in both directions."""
    found: set[tuple[str, str]] = set()
    around: list[set[str]] = [set()]
    """By depth of brackets: lifetimes of the references to what comes next."""
    own: list[tuple[set[str], set[str]]] = [(set(), set())]
    """By depth: lifetimes that are arguments themselves, and all."""
    for at, token in enumerate(part):
        before = part[at - 1].text if at else ""
        if token.text in ("<", "(", "["):
            around.append({*around[-1]})
            own.append((set(), set()))
        elif token.text in (")", "]") or (token.text == ">" and before not in ("-", "=")):
            if len(own) > 1:
                around.pop()
                arguments, every = own.pop()
                for one, two in product(arguments, every):
                    found |= {(one, two), (two, one)}
                own[-1][1].update(every)
        elif token.text == ",":
            around[-1] = {*around[-2]} if len(around) > 1 else set()
        elif token.text in free:
            found |= {(one, token.text) for one in around[-1]}
            own[-1][1].add(token.text)
            if before == "&":
                around[-1].add(token.text)
            elif before in ("<", ","):
                own[-1][0].add(token.text)
    return {(short, long) for short, long in found if short != long}


def _made_by_a_macro(body: Sequence[Token]) -> Iterator[Token]:
    """`fn` of the functions that a macro names and that may take a bound for granted, or are not
    all there."""
    behind = ends_of_groups(body)
    left = 2 * len(body)
    for at in range(len(body) - 3):
        if body[at].text == "fn" and body[at + 1].text == "$":
            head = [body[at], *body[at + 2 : _end_of_head(body, behind, at)]]
            left -= len(head)
            whole = len(head) <= _LONGEST_HEAD and left >= 0 and _is_plain(head)
            if (
                not whole
                or any(one.text == "$" for one in head)
                or _takes_for_granted(Function.read(head))
            ):
                yield body[at]
            if left < 0:
                return


def _is_plain(head: Sequence[Token]) -> bool:
    """The head of a function as `Function.read` takes it."""
    return len(head) > 3 and head[2].text in ("<", "(") and any(token.text == ")" for token in head)


def _of_projections(found: Sequence[Token]) -> Iterator[Token]:
    """`<&'a &'b () as Trait>::Type`: an `impl` for it assumes a bound that its users need not keep
    (#100051)."""
    opened: list[int] = []
    for at, token in enumerate(found):
        if token.text == "<":
            opened.append(at)
        elif token.text == ">" and opened and found[at - 1].text not in ("-", "="):
            opened.pop()
        elif token.text in ("{", "}", ";"):
            opened.clear()
        elif token.text == "as" and opened:
            part = found[max(opened[-1], at - 50) : at]
            nested = any(
                one.text == "&" and two.kind is Kind.LIFETIME for one, two in pairwise(part)
            )
            if nested and len(_lifetimes(part) - _FREE) > 1:
                yield token


def _of_closures(found: Sequence[Token]) -> Iterator[Token]:
    """`|| -> &'a T`: a closure counts as one that outlives everything, though what it returns does
    not (#84366)."""
    for at in range(1, len(found) - 2):
        if [found[at - 1].text, found[at].text, found[at + 1].text] == ["|", "-", ">"]:
            end = next(
                (n for n in range(at, min(at + 100, len(found))) if found[n].text == "{"), at
            )
            if _lifetimes(found[at:end]) - _FREE:
                yield found[at]


def _lifetimes(part: Sequence[Token]) -> set[str]:
    return {token.text for token in part if token.kind is Kind.LIFETIME}


def _values(found: Sequence[Token], behind: Sequence[int], names: set[str]) -> set[str]:
    """Those of `names` that stand somewhere other than in their definition or a call, or in a macro
    of the answer."""
    values = set()
    own_macros = {
        two.text for one, two in zip(found, found[2:], strict=False) if one.text == "macro_rules"
    }
    called_until = 0
    for at, token in enumerate(found):
        if token.kind is not Kind.NAME:
            continue
        following = found[at + 1].text if at + 1 < len(found) else ""
        if token.text in own_macros and following == "!" and at + 2 < len(found):
            called_until = max(called_until, behind[at + 2])
        is_use = token.text in names and at > 0 and found[at - 1].text not in ("fn", ".")
        if is_use and (following != "(" or at < called_until):
            values.add(token.text)
    return values
