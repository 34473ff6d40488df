"""What imports of everything from an answer bring into tests, where no signature says it: the names
that rustc does not find without them.

So an answer cannot give a word another meaning that has one already, and none of its traits is in
scope but those that tests name, or have a method of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from functools import cached_property
from itertools import chain

from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.compile import CompilerMessage
from services.graders.rust.evaluation import find_missing_name
from services.graders.rust.glob_imports import find_globs
from services.graders.rust.lexer import code, list_texts, parse_inner_items

_OTHER_KIND = re.compile(r"expected .*, found [a-z ]+ `(\w+)`")
"""The message for a function that is called like a crate, a macro or a module of the tests."""
METHOD = re.compile(r"(?:\.|: :) ([^\W\d]\w*)")


class ImportedNames:
    """The names that the tests get from one answer."""

    def __init__(self, task: RustTask, answer: RustAnswer) -> None:
        self.names: frozenset[str] = frozenset()
        self._absent: set[str] = set()
        self._answer = answer
        self._has_globs = bool(find_globs(task.tests, task.crate))
        self._called = set(METHOD.findall(" ".join(list_texts(code(task.tests)))))

    @cached_property
    def enums(self) -> frozenset[str]:
        """Enums of the answer without parameters."""
        names = set()
        for item in chain.from_iterable(self._answer.items.values()):
            if item.word == "enum" and f"enum {item.name} {{" in " ".join(list_texts(item.body)):
                names.add(item.name)
        return frozenset(names)

    def refine(self, errors: Iterable[CompilerMessage]) -> bool:
        """Return whether `names` are others by these errors: names are added that are missing, and
        left out that the answer does not have."""
        missing = set()
        methods = set()
        for error in errors:
            name = (find_missing_name(error.text, error.code) or "").rpartition("::")[2]
            other = _OTHER_KIND.match(error.text)
            if other:
                name = other[1]
            if error.code == "E0599":
                methods.add(name)
            elif error.code == "E0432" and name in self.names:
                self._absent.add(name)
            elif name:
                missing.add(name)
        before = self.names
        self.names = (before | missing | self._find_traits(methods)) - self._absent
        return self._has_globs and self.names != before

    def _find_traits(self, methods: Set[str]) -> set[str]:
        """Return traits of the answer by which it has these methods, and no other that is
        called."""
        traits = set()
        for item in chain.from_iterable(self._answer.items.values()):
            functions = {inner.name for inner in parse_inner_items(item)}
            is_read = item.word == "trait" and "" not in functions
            if is_read and functions & methods and functions & self._called <= methods:
                traits.add(item.name)
        return traits
