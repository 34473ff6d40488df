"""What the known inputs of a task have in common, which a new input must have as well: sorted
lists, distinct items, ranges, a number that counts the items of a list.

A task's precondition stands in its prompt, which no program reads. An input that breaks it would
fail right answers, so an input is refused sooner than a precondition is missed: what all known
inputs share by chance is required, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, pairwise
from typing import Any

_BRACKETS = {")": "(", "]": "[", "}": "{", ">": "<"}
_MAX_HEADS = 20
"""Numbers of an input that are compared with each other."""


class Invariants:
    """The facts and ranges of known inputs. An input is the list of its parts: JSON values."""

    def __init__(self, inputs: Sequence[Sequence[Any]]) -> None:
        self._facts: dict[str, set[str]] = {}
        self._ranges: dict[str, tuple[float, float]] = {}
        for parts in inputs:
            for path, facts in collect_facts(parts).items():
                self._facts[path] = self._facts.get(path, facts) & facts
            for path, number in _iter_numbers(parts):
                lowest, greatest = self._ranges.get(path, (number, number))
                self._ranges[path] = (min(lowest, number), max(greatest, number))

    def admit(self, parts: Sequence[Any]) -> bool:
        """Return whether an input has what all known ones have."""
        for path, number in _iter_numbers(parts):
            lowest, greatest = self._ranges.get(path, (number, number))
            if not lowest <= number <= greatest:
                return False
        return self.has_facts(parts)

    def has_facts(self, parts: Sequence[Any]) -> bool:
        """Return whether an input has the facts, whatever its ranges."""
        for path, facts in collect_facts(parts).items():
            if not self._facts.get(path, facts) <= facts:
                return False
        return True


def collect_facts(parts: Sequence[Any]) -> dict[str, set[str]]:
    """Return what holds for an input, in words, by place; relations between parts have none."""
    facts: dict[str, set[str]] = {"": set()}
    for number, part in enumerate(parts):
        for path, values in _group(str(number), part).items():
            facts[path] = set(_find_facts(values))
    tops = dict(_iter_tops(parts))
    heads = islice([*tops.items(), *_iter_extremes(parts)], _MAX_HEADS)
    for (name, size), (other_name, other_size) in combinations(heads, 2):
        if size <= other_size:
            facts[""].add(f"{name} <= {other_name}")
        if size >= other_size:
            facts[""].add(f"{name} >= {other_name}")
        if size != other_size and other_name in tops:
            facts[""].add(f"{name} != {other_name}")
    return facts


def _group(path: str, value: Any) -> dict[str, list[Any]]:
    """Return all values of a part by where they stand, whatever their index."""
    groups: dict[str, list[Any]] = {path: [value]}
    children: list[tuple[str, Any]] = []
    if isinstance(value, list):
        children = [(f"{path}.item", item) for item in value]
    elif isinstance(value, dict):
        children = [(f"{path}.{key}", item) for key, item in value.items()]
    for child_path, child in children:
        for inner, values in _group(child_path, child).items():
            groups.setdefault(inner, []).extend(values)
    return groups


def _find_facts(values: Sequence[Any]) -> Iterator[str]:
    """Yield what holds for all values that stand at one place."""
    yield f"types {sorted({type(value).__name__ for value in values})}"
    numbers = [value for value in values if _is_number(value)]
    lists = [value for value in values if isinstance(value, list | str)]
    texts = [value for value in values if isinstance(value, str)]
    if min(numbers, default=1) > 0:
        yield "positive"
    if all(lists):
        yield "not empty"
    if len({len(each) for each in lists}) < 2:
        yield "of one length"
    if all(map(_is_distinct, lists)):
        yield "distinct"
    for name, sign in (("rising", "<="), ("falling", ">=")):
        if all(_is_ordered(each, sign) for each in lists):
            yield name
    shapes = {_get_shape(text) for text in texts}
    if len(shapes) == 1:
        yield f"of the shape {shapes.pop()}"
    if all(map(_is_balanced, texts)):
        yield "balanced"
    if all(text == text.strip() and "  " not in text for text in texts):
        yield "words"
    if all(text == text[::-1] for text in texts):
        yield "palindromes"


def _iter_tops(parts: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers at the top of an input, and the sizes of what stands there."""
    for number, part in enumerate(parts):
        if _is_number(part):
            yield str(number), part
        elif isinstance(part, list | str):
            yield f"size {number}", len(part)


def _iter_extremes(parts: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield the lowest and the greatest number at each place within lists and objects."""
    for number, part in enumerate(parts):
        if not isinstance(part, list | dict):
            continue
        for path, values in _group(str(number), part).items():
            numbers = [value for value in values if _is_number(value)]
            if numbers:
                yield f"lowest {path}", min(numbers)
                yield f"greatest {path}", max(numbers)


def _iter_numbers(parts: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield numbers by their place, those within texts too, and how many digits these have."""
    for number, part in enumerate(parts):
        for path, values in _group(str(number), part).items():
            for value in values:
                if _is_number(value):
                    yield path, value
                elif isinstance(value, str):
                    for at, digits in enumerate(re.findall("[0-9]+", value)):
                        yield f"{path}, number {at}", int(digits[:18])
                        yield f"{path}, digits of {at}", len(digits)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_distinct(items: Sequence[Any]) -> bool:
    return len({repr(item) for item in items}) == len(items)


def _is_ordered(items: Sequence[Any], sign: str) -> bool:
    try:
        return all(
            before <= after if sign == "<=" else before >= after
            for before, after in pairwise(items)
        )
    except TypeError:  # values that have no order
        return True


def _get_shape(text: str) -> str:
    """Return a text with runs of digits, of small and of capital letters as one character each."""
    for pattern, letter in (("[0-9]+", "9"), ("[a-z]+", "a"), ("[A-Z]+", "A")):
        text = re.sub(pattern, letter, text)
    return text


def _is_balanced(text: str) -> bool:
    """Return whether each bracket of the text is closed by one of its kind."""
    opened = []
    for character in text:
        if character in _BRACKETS.values():
            opened.append(character)
        elif character in _BRACKETS and (not opened or opened.pop() != _BRACKETS[character]):
            return False
    return not opened


def group_values(inputs: Sequence[Sequence[Any]]) -> Mapping[str, list[Any]]:
    """Return the values of all inputs by where they stand."""
    groups: dict[str, list[Any]] = {}
    for parts in inputs:
        for number, part in enumerate(parts):
            for path, values in _group(str(number), part).items():
                groups.setdefault(path, []).extend(values)
    return groups
