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

from services.graders.rust.lexer import Kind, Token, compute_group_ends, iter_macro_bodies
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


def find_assumed_bounds(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield where an answer may take a bound between lifetimes for granted.

    The name of every function that does so and is used as a value, and the two other shapes of the
    module's text.
    """
    generic = [
        at
        for at, token in enumerate(tokens[:-2])
        if token.text == "fn" and tokens[at + 2].text == "<"
    ]
    group_ends = compute_group_ends(tokens) if generic else []
    risky: dict[str, Token] = {}
    budget = 2 * len(tokens)  # heads overlap in texts that are no Rust only
    for at in generic:
        head = tokens[at : _find_head_end(tokens, group_ends, at)]
        budget -= len(head)
        if len(head) > _LONGEST_HEAD or budget < 0:
            yield tokens[at]
            return
        if _has_assumed_bound(Function.read(head)):
            risky.setdefault(tokens[at + 1].text, tokens[at + 1])
    values = _find_value_uses(tokens, group_ends, set(risky)) if risky else set()
    yield from (token for name, token in risky.items() if name in values)
    named = _collect_lifetimes(tokens) - _FREE
    if len(named) > 1:
        for body in iter_macro_bodies(tokens):
            yield from _find_macro_functions(body)
        yield from _find_projections(tokens)
    if named:
        yield from _find_closures(tokens)


def _find_head_end(tokens: Sequence[Token], group_ends: Sequence[int], at: int) -> int:
    """Behind the head of the function that starts at `at`, or behind as much of it as is looked
    at."""
    start = at
    while (
        at < len(tokens) and at - start <= _LONGEST_HEAD and tokens[at].text not in ("{", ";", "}")
    ):
        at = group_ends[at]
    return min(at, len(tokens), start + _LONGEST_HEAD + 1)


def _has_assumed_bound(function: Function) -> bool:
    """Return whether parts of the head imply a bound `long: short`, and something with `long` may
    end up where `short` is due.

    That is the result, or what a parameter refers to or holds. Lifetimes with a bound of their own
    are checked by the compiler wherever the function is used.
    """
    lifetimes = {
        part[0].text
        for part in function.generics
        if part[0].kind is Kind.LIFETIME and len(part) == 1
    }
    bounds = [part for part in function.generics if len(part) > 1]
    free = lifetimes.difference(
        _collect_lifetimes(function.where_clause), *map(_collect_lifetimes, bounds)
    )
    if len(free) > _MOST_LIFETIMES:
        return True
    inside = [part[2:] if part[:1] and part[0].text == "&" else part for part in function.takes]
    due = set().union(_collect_lifetimes(function.gives), *map(_collect_lifetimes, inside))
    of_result = _collect_implied_bounds(function.gives, free)
    takes_more = any(token.text in _CALLED for token in function.gives)
    implied = of_result.union(*(_collect_implied_bounds(part, free) for part in function.takes))
    for short, long in implied:
        if short in due and (
            (takes_more and long in _collect_lifetimes(function.gives))
            or {(short, long), (long, short)} <= of_result
            or any(_has_longer_lifetime(part, short, long) for part in function.takes)
        ):
            return True
    return False


def _has_longer_lifetime(part: Sequence[Token], short: str, long: str) -> bool:
    """Return whether the parameter has `long`, and is no reference of `short`."""
    return long in _collect_lifetimes(part) and [token.text for token in part[:2]] != ["&", short]


def _collect_implied_bounds(part: Sequence[Token], free: set[str]) -> set[tuple[str, str]]:
    """`(short, long)` for each bound `long: short` that the type may need: `&'short Some<'long>`,
    and between the lifetimes of one path, `Some<'a, 'b>`, in both directions."""
    bounds: set[tuple[str, str]] = set()
    around: list[set[str]] = [set()]
    """By depth of brackets: lifetimes of the references to what comes next."""
    levels: list[tuple[set[str], set[str]]] = [(set(), set())]
    """By depth: lifetimes that are arguments themselves, and all."""
    for at, token in enumerate(part):
        before = part[at - 1].text if at else ""
        if token.text in ("<", "(", "["):
            around.append({*around[-1]})
            levels.append((set(), set()))
        elif token.text in (")", "]") or (token.text == ">" and before not in ("-", "=")):
            if len(levels) > 1:
                around.pop()
                arguments, every = levels.pop()
                for lifetime, other in product(arguments, every):
                    bounds |= {(lifetime, other), (other, lifetime)}
                levels[-1][1].update(every)
        elif token.text == ",":
            around[-1] = {*around[-2]} if len(around) > 1 else set()
        elif token.text in free:
            bounds |= {(lifetime, token.text) for lifetime in around[-1]}
            levels[-1][1].add(token.text)
            if before == "&":
                around[-1].add(token.text)
            elif before in ("<", ","):
                levels[-1][0].add(token.text)
    return {(short, long) for short, long in bounds if short != long}


def _find_macro_functions(body: Sequence[Token]) -> Iterator[Token]:
    """`fn` of the functions that a macro names and that may take a bound for granted, or are not
    all there."""
    group_ends = compute_group_ends(body)
    budget = 2 * len(body)
    for at in range(len(body) - 3):
        if body[at].text == "fn" and body[at + 1].text == "$":
            head = [body[at], *body[at + 2 : _find_head_end(body, group_ends, at)]]
            budget -= len(head)
            is_complete = len(head) <= _LONGEST_HEAD and budget >= 0 and _is_plain(head)
            if (
                not is_complete
                or any(token.text == "$" for token in head)
                or _has_assumed_bound(Function.read(head))
            ):
                yield body[at]
            if budget < 0:
                return


def _is_plain(head: Sequence[Token]) -> bool:
    """Return whether it is the head of a function as `Function.read` takes it."""
    return len(head) > 3 and head[2].text in ("<", "(") and any(token.text == ")" for token in head)


def _find_projections(tokens: Sequence[Token]) -> Iterator[Token]:
    """`<&'a &'b () as Trait>::Type`: an `impl` for it assumes a bound that its users need not keep
    (#100051)."""
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.text == "<":
            opened.append(at)
        elif token.text == ">" and opened and tokens[at - 1].text not in ("-", "="):
            opened.pop()
        elif token.text in ("{", "}", ";"):
            opened.clear()
        elif token.text == "as" and opened:
            part = tokens[max(opened[-1], at - 50) : at]
            nested = any(
                first.text == "&" and second.kind is Kind.LIFETIME
                for first, second in pairwise(part)
            )
            if nested and len(_collect_lifetimes(part) - _FREE) > 1:
                yield token


def _find_closures(tokens: Sequence[Token]) -> Iterator[Token]:
    """`|| -> &'a T`: a closure counts as one that outlives everything, though what it returns does
    not (#84366)."""
    for at in range(1, len(tokens) - 2):
        if [tokens[at - 1].text, tokens[at].text, tokens[at + 1].text] == ["|", "-", ">"]:
            end = next(
                (n for n in range(at, min(at + 100, len(tokens))) if tokens[n].text == "{"), at
            )
            if _collect_lifetimes(tokens[at:end]) - _FREE:
                yield tokens[at]


def _collect_lifetimes(part: Sequence[Token]) -> set[str]:
    return {token.text for token in part if token.kind is Kind.LIFETIME}


def _find_value_uses(
    tokens: Sequence[Token], group_ends: Sequence[int], names: set[str]
) -> set[str]:
    """Return those of `names` that stand somewhere other than in their definition or a call, or in
    a macro of the answer."""
    values = set()
    own_macros = {
        name.text
        for keyword, name in zip(tokens, tokens[2:], strict=False)
        if keyword.text == "macro_rules"
    }
    called_until = 0
    for at, token in enumerate(tokens):
        if token.kind is not Kind.NAME:
            continue
        following = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if token.text in own_macros and following == "!" and at + 2 < len(tokens):
            called_until = max(called_until, group_ends[at + 2])
        is_use = token.text in names and at > 0 and tokens[at - 1].text not in ("fn", ".")
        if is_use and (following != "(" or at < called_until):
            values.add(token.text)
    return values
