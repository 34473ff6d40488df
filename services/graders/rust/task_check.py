"""Whether a task's tests can be compiled at all: found out against a stub of what the task declares, not an answer.

A stub stands for every answer, so only errors that no answer can mend are the task's: of syntax, and of names that
neither the task declares nor the answer can bring. Errors of types may be due to the stub and say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradus.tasks.rust import RustTask
from services.graders.rust.compile import Compiled, CompilerMessage, CompileStatus
from services.graders.rust.glob_imports import globs, is_plain
from services.graders.rust.lexer import Item, code, ends_of_groups, items
from services.graders.rust.signature import Signature
from services.graders.rust.tests_file import TestsFile

_UNRESOLVED = frozenset({"E0405", "E0412", "E0425", "E0432", "E0433"})
_NAME = re.compile(r"`(?:r#)?(\w+)[^`]*`")
_DERIVED = "#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]"


def stub(task: RustTask, signature: Signature | None) -> str:
    """A library that has what the signature declares, so far as it can be written down; empty without a signature.

    What the tests import from elsewhere is imported here too: the signature may name it.
    """
    if signature is None or task.signature is None:
        return ""
    text = task.tests
    lines = ["#![allow(warnings)]"]
    for item in items(code(text)):
        words = [token.text for token in item.body]
        if item.word == "use" and task.crate not in words[:4]:
            lines.append(text[item.body[0].start : item.body[-1].start + 1])
    declared = [*items(code(task.signature))]
    return "\n".join([*lines, *(_declared(task.signature, item) for item in declared)]) + "\n"


def _declared(text: str, item: Item) -> str:
    start, last = item.body[0].start, item.body[-1]
    source = text[start : last.start + len(last.text)]
    words = [token.text for token in item.body]
    if item.word in ("struct", "enum") and not {"{", "("} & set(words[words.index(item.name) :]):
        return f"{_DERIVED} pub struct {item.name};" if "<" not in words else ""
    if item.word in ("const", "static") and "=" not in words:
        return source.removesuffix(";") + " = loop {};"
    return _with_bodies(source)


def _with_bodies(source: str) -> str:
    """`source` with a body for each function that has none."""
    found = code(source)
    behind = ends_of_groups(found)
    out, position = "", 0
    for at, token in enumerate(found):
        if token.text == "fn" and at + 1 < len(found) and found[at + 1].text not in ("(", "<"):
            end = at
            while end < len(found) and found[end].text not in ("{", ";", "}"):
                end = behind[end]
            if end < len(found) and found[end].text == ";":
                out += source[position : found[end].start] + " { loop {} }"
                position = found[end].start + 1
    return out + source[position:]


def task_error(task: RustTask, signature: Signature | None, compiled: Compiled, tests: TestsFile) -> str | None:
    """What is wrong with the tests, with its line, as their compilation against the stub shows."""
    if compiled.came is not CompileStatus.REFUSED:
        return None
    for error in compiled.errors:
        if (line := tests.line_of_task(error.line)) is not None and _is_of_task(task, signature, error):
            return f"line {line} of its tests: {error.text}"
    return None


def signature_error(signature: Signature | None, compiled: Compiled, tests: TestsFile, *, bare: bool) -> str | None:
    """The declaration that not even a stub made of it meets. `bare`: there is no stub, and only names are known."""
    for error in compiled.errors:
        if pin := tests.pins.get(error.line):
            name = _NAME.search(error.text)
            unknown = error.code in _UNRESOLVED and "in this scope" in error.text and name is not None
            if unknown and not (signature and name and name[1] in signature.names):
                return f"in its signature, of `{pin.name}`: {error.text}"
            if not bare:
                return f"no answer can be what its signature declares as `{pin.name}`: {error.text}"
    return None


def _is_of_task(task: RustTask, signature: Signature | None, error: CompilerMessage) -> bool:
    if error.code is None:
        return not error.text.startswith("cannot find")  # a macro or an attribute, which the answer may bring
    if error.code not in _UNRESOLVED or f"`{task.crate}" in error.text:
        return False
    imported: Sequence[str] = [task.tests[a.start : b.start + 1] for a, b in globs(task.tests, task.crate)]
    if any(signature is None or not is_plain(one, task.crate) for one in imported):
        return False  # the answer may bring the name
    found = _NAME.search(error.text)
    is_import = error.text.startswith("unresolved import")
    return (
        found is not None
        and ("in this scope" in error.text or is_import)
        and not (signature is not None and found[1] in signature.names)
    )
