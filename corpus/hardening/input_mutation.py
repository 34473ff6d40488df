"""New inputs of programs: a known input with one to three changes, as a JSON value of a call or as
text on standard input."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Sequence
from typing import Any

from corpus.hardening.invariants import group_values

_TOKEN = re.compile(r"\S+")
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_CONSTANT = re.compile(r"(?<![\w.])\d{1,6}(?![\w.])")
_MAX_CHANGES = 3


def find_constants(solution: str) -> list[int]:
    """Return the integers that a reference answer names, and their neighbours."""
    numbers = {0, *(int(text) for text in _CONSTANT.findall(solution))}
    return sorted({number + step for number in numbers for step in (-1, 0, 1)})


class CallMutation:
    """Changes arguments of calls. Values come from the known calls, from the reference answer, and
    from beside these."""

    def __init__(self, examples: Sequence[Sequence[Any]], solution: str, seed: str) -> None:
        self._draw = random.Random(seed)
        self._constants = find_constants(solution)
        self._pools = group_values(examples)

    def change(self, arguments: Sequence[Any]) -> list[Any]:
        """Return arguments with one to three changes."""
        changed = copy.deepcopy(list(arguments))
        for _ in range(self._draw.randint(1, _MAX_CHANGES)):
            number = self._draw.randrange(len(changed))
            changed[number] = self._change(changed[number], str(number))
        return changed

    def _change(self, value: Any, path: str) -> Any:
        draw = self._draw
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            near = value + draw.choice((-2, -1, 1, 2))
            example = draw.choice(self._pools.get(path, [value]))
            return draw.choice((near, example, draw.choice(self._constants)))
        if isinstance(value, str):
            return self._change_text(value, path)
        if isinstance(value, list):
            return self._change_list(value, path)
        if isinstance(value, dict) and value:
            key = draw.choice(sorted(value))
            return {**value, key: self._change(value[key], f"{path}.{key}")}
        return draw.choice(self._pools.get(path, [value]))

    def _change_list(self, items: list[Any], path: str) -> list[Any]:
        draw = self._draw
        inner = f"{path}.item"
        pool = self._pools.get(inner, [])
        kind = draw.choice(("drop", "insert", "swap", "repeat", "change", "sort"))
        items = list(items)
        if kind == "insert" or not items:
            if pool:
                items.insert(draw.randint(0, len(items)), copy.deepcopy(draw.choice(pool)))
            return items
        at = draw.randrange(len(items))
        match kind:
            case "drop":
                del items[at]
            case "swap":
                place = draw.randrange(len(items))
                items[at], items[place] = items[place], items[at]
            case "repeat":
                items.insert(draw.randint(0, len(items)), copy.deepcopy(items[at]))
            case "change":
                items[at] = self._change(items[at], inner)
            case "sort":
                items.sort(key=lambda item: (str(type(item)), item if _is_plain(item) else 0))
        return items

    def _change_text(self, text: str, path: str) -> str:
        draw = self._draw
        texts = self._pools.get(path, [text])
        alphabet = "".join(sorted({*"".join(part for part in texts if isinstance(part, str))}))
        kind = draw.choice(("drop", "insert", "change", "swap", "other"))
        if kind == "other" or not alphabet:
            return str(draw.choice(texts))
        at = draw.randint(0, len(text))
        character = draw.choice(alphabet)
        match kind:
            case "drop":
                return text[:at] + text[at + 1 :]
            case "insert":
                return text[:at] + character + text[at:]
            case "swap":
                return text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
        return text[:at] + character + text[at + 1 :]


class InputMutation:
    """Changes words of standard input in their places: lines and words per line stay, as do numbers
    that may count something, words that occur twice, and words that the reference names."""

    def __init__(self, examples: Sequence[str], solution: str, seed: str) -> None:
        self._draw = random.Random(seed)
        self._words: dict[str, int] = {}
        for text in examples:
            for word in _TOKEN.findall(text):
                self._words[word] = self._words.get(word, 0) + 1
        self._solution = solution
        self._constants = find_constants(solution)
        self._numbers = sorted({int(word) for word in self._words if _INTEGER.fullmatch(word)})
        data = {word for word in self._words if self._is_data(word)}
        self._alphabet = sorted({*"".join(data)})

    def change(self, text: str) -> str:
        """Return a text with one to three changes; the same text where nothing may change."""
        tokens = list(_TOKEN.finditer(text))
        counts = find_counts(text)
        free = []
        for number, token in enumerate(tokens):
            is_number = _INTEGER.fullmatch(token[0]) is not None
            if (is_number and number not in counts) or self._is_data(token[0]):
                free.append(number)
        words = [token[0] for token in tokens]
        for _ in range(self._draw.randint(1, _MAX_CHANGES)):
            if free:
                at = self._draw.choice(free)
                words[at] = self._change_word(words, at, free)
        parts = []
        end = 0
        for token, word in zip(tokens, words, strict=True):
            parts += [text[end : token.start()], word]
            end = token.end()
        return "".join([*parts, text[end:]])

    def _is_data(self, word: str) -> bool:
        """Return whether a word is no number and no keyword."""
        is_number = re.fullmatch(r"[+-]?[\d.]+(?:e-?\d+)?", word) and _is_canonical(word)
        is_keyword = self._words.get(word, 0) > 1 or f'"{word}"' in self._solution
        return not is_number and not is_keyword and f"'{word}'" not in self._solution

    def _change_word(self, words: Sequence[str], at: int, free: Sequence[int]) -> str:
        draw = self._draw
        word = words[at]
        if not _INTEGER.fullmatch(word):
            place = draw.randrange(len(word))
            similar = [each for each in self._alphabet if _classify(each) == _classify(word[place])]
            character: str = draw.choice(similar or [word[place]])
            return word[:place] + character + word[place + 1 :]
        near = int(word) + draw.choice((-2, -1, 1, 2))
        numbers = [words[place] for place in free if _INTEGER.fullmatch(words[place])]
        usual = (draw.choice(self._numbers), int(draw.choice(numbers)))
        return str(draw.choice((near, *usual, draw.choice(self._constants))))


def find_counts(text: str) -> set[int]:
    """Return the numbers of words that may count something: the words of their line or of the next,
    the letters of a word there, the lines that follow, or those of one form. One that is alone on
    the first line counts tests or items, if lines follow."""
    lines = [line.split() for line in text.splitlines()]
    counts = set()
    number = 0
    for at, line in enumerate(lines):
        following = [each for each in lines[at + 1 :] if each]
        sizes = {len(line) - 1 - column for column in range(len(line))}
        sizes |= {len(following), *_measure_runs(following)}
        for word in [*line, *(following[0] if following else [])]:
            if not _INTEGER.fullmatch(word):
                sizes.add(len(word))
        if following:
            sizes.add(len(following[0]))
        values = [int(word) if _INTEGER.fullmatch(word) else None for word in line]
        total = sum(value for value in values if value is not None)
        for value in values:
            is_alone = at == 0 and len(line) == 1 and following
            if is_alone or value in sizes or (at == 0 and total == len(following)):
                counts.add(number)
            number += 1
    return counts


def split_parts(text: str) -> list[Any]:
    """Return an input as the parts whose invariants are looked at: the words of its first line, its
    second line, and its remaining lines by how many words they have."""
    lines = [list(map(_read_word, line.split())) for line in text.splitlines()]
    first, *following = lines or [[]]
    by_width: dict[str, list[Any]] = {}
    for line in following[1:]:
        by_width.setdefault(str(len(line)), []).append(line)
    return [*first, *following[:1], by_width]


def _measure_runs(lines: Sequence[Sequence[str]]) -> set[int]:
    """Return the lengths of the runs of lines with the same number of words."""
    lengths = []
    width = -1
    for line in lines:
        if len(line) != width:
            lengths.append(0)
            width = len(line)
        lengths[-1] += 1
    return set(lengths)


def _read_word(word: str) -> int | str:
    return int(word) if _INTEGER.fullmatch(word) else word


def _is_canonical(word: str) -> bool:
    return not re.match(r"[+-]?0\d", word)


def _classify(character: str) -> tuple[bool, bool, bool]:
    return character.isdigit(), character.islower(), character.isupper()


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str)
