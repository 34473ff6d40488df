"""The signature of an OCaml task: declarations of its prompt first, then what the compiler infers
for the reference answer (`ocamlc -i`), cut down to what tests name and no more general than they
need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from corpus.drafts import Candidate, Unusable
from corpus.ocaml_text import find_declared_types
from services.graders.ocaml.grader import OcamlGrader
from services.sandbox import Command, Limits

_LIMITS = Limits(cpu_s=5, wall_s=30.0, memory_mb=1024)
_VALUE = re.compile(r"(?:val|external) (?:\( (\S+) \)|([a-z_][\w']*))\s*:\s*")
_MODULE = re.compile(r"module (\w+)")
_ALIAS = re.compile(
    r"^(?P<head>\s*type (?:[+-]?'\w+ |\([^()]*\) )?[a-z_][\w']*)"
    r"(?P<body> =(?! private\b)[^\n]*"
    r"(?:\n(?!\s*(?:val|type|exception|module|and|end|external|class)\b)[^\n]*)*)",
    re.MULTILINE,
)
_DEFINED = re.compile(
    r"(?:^(?:type|and|module|exception|class)(?: nonrec)?(?: [+-]?'\w+| \([^()]*\))?"
    r"|[=|{;]|mutable)\s+([a-zA-Z_][\w']*)",
    re.MULTILINE,
)
_USES = "gradus_uses"


def derive_signatures(
    grader: OcamlGrader, solution: str, tests: str, prompt: str = ""
) -> Iterator[Candidate]:
    """Yield signatures as in an `.mli`, from the one that most answers fit to the one that was
    inferred: types, exceptions and modules of the solution, and the values that the tests name.

    Raises Unusable for a solution that does not compile by itself, and for one that the tests use
    nothing of.
    """
    full = _select_declarations(_infer(grader, solution), tests)
    declared = _declare_types(grader, full, solution, tests, prompt)
    variants = [solution]
    bindings = []
    for item, before in zip(declared, full, strict=True):
        value = _VALUE.match(item)
        if value and item != before:
            name = value[2] or f"( {value[1]} )"
            bindings.append(f"let {name} : {item[value.end() :]} = {name}\n")
    if bindings:
        variant = f"{solution}\n;;\n{''.join(bindings)}"
        try:
            _infer(grader, variant)
            variants.append(variant)
        except Unusable:  # the prompt declares what the reference answer is not
            declared = full
    signatures = []
    for items in (_drop_unused(declared, tests), _drop_unused(full, tests)):
        for shown in ("", "{|", None):
            hidden = _hide_types(items, prompt, shown)
            signatures += ["\n".join(map(_use_aliases, items, hidden)), "\n".join(hidden)]
    for signature in dict.fromkeys([*signatures, "\n".join(full)]):
        yield Candidate(f"{signature}\n", tuple(variants))


def _infer(grader: OcamlGrader, source: str) -> list[str]:
    """Return the items that the compiler infers. Raises Unusable where it does not compile."""
    path = "/box/solution.ml"
    command = Command(
        argv=(grader.toolchain.ocamlc, "-i", "-w", "-a", path),
        limits=_LIMITS,
        files={path: source.encode()},
        binds=grader.toolchain.compile_binds,
    )
    outcome = grader.sandbox.run(command)
    if outcome.exit_code != 0:
        message = outcome.stderr.decode(errors="replace").replace("/box/", "").strip()
        raise Unusable(f"solution: does not compile by itself: {message[:300]}")
    return re.split(r"\n(?=\S)", outcome.stdout.decode(errors="replace").strip())


def _select_declarations(items: Sequence[str], tests: str) -> list[str]:
    named = set(re.findall(r"[\w']+|[!$%&*+\-./:<=>?@^|~]+", tests))
    declarations = []
    is_used = False
    for item in items:
        value = _VALUE.match(item)
        module = _MODULE.match(item)
        if value is None or (value[1] or value[2]) in named:
            declarations.append(item)
            is_used = is_used or value is not None or (module is not None and module[1] in named)
    if not is_used:
        raise Unusable("tests: name no value and no module that the solution defines")
    if "'_weak" in "\n".join(declarations):
        raise Unusable(
            "solution: a value has a type that is not settled (`'_weak1`), which no signature can"
            " have"
        )
    return declarations


def _drop_unused(items: Sequence[str], tests: str) -> list[str]:
    """Return the items without types, exceptions and modules that neither the tests nor the other
    items name. Names stand behind their definitions."""
    words = set(re.findall(r"[\w']+", tests))
    used = []
    for item in reversed(items):
        names = _DEFINED.findall(item)
        if item.startswith("module"):
            names = names[:1]
        if _VALUE.match(item) or not names or words.intersection(names):
            used.append(item)
            words.update(re.findall(r"[\w']+", item))
    return used[::-1]


def _declare_types(
    grader: OcamlGrader, items: Sequence[str], solution: str, tests: str, prompt: str
) -> list[str]:
    """Return the items with types of values as the prompt declares them; where it is silent, no
    more general than the tests need."""
    types = find_declared_types(prompt)
    declared = []
    for item in items:
        value = _VALUE.match(item)
        type_ = None
        if value:
            type_ = types.get(value[1] or value[2])
            if type_ is None and "'" in item[value.end() :]:
                type_ = _infer_use(grader, value[2], solution, tests)
        declared.append(f"{value[0]}{type_}" if value and type_ else item)
    return declared


def _infer_use(grader: OcamlGrader, name: str | None, solution: str, tests: str) -> str | None:
    """Return the type at which the tests use a value; None where they use it at several, or are no
    plain tests."""
    if not name:
        return None
    plain = re.sub(r"\bopen!? Solution\b|\bSolution\.(?=\w)", "", tests).replace(";;", "")
    uses = f"let {_USES} {name} = let module Tests = struct\n{plain}\nend in ignore {name}"
    try:
        items = _infer(grader, f"{solution}\n;;\n{uses}\n")
    except Unusable:
        return None
    head = f"val {_USES} :"  # a long type begins on the next line
    use = next((item for item in items if item.startswith(head)), "")
    used = " ".join(use.removeprefix(head).split()).removesuffix(" -> unit")
    if used.startswith("(") and used.endswith(")"):
        used = used[1:-1]
    return used or None


def _use_aliases(item: str, hidden: str) -> str:
    """Return the hidden item with the names of hidden types in place of what they stand for, which
    the compiler writes out."""
    for definition in _ALIAS.finditer(item):
        body = definition["body"].removeprefix(" =").strip()
        if definition[0] not in hidden and body[:1] not in ("{", "|") and not body[:1].isupper():
            name = definition["head"].split("type ", 1)[1]
            hidden = re.sub(rf"(?<![\w'.]){re.escape(body)}(?![\w'.])", name, hidden)
    return hidden


def _hide_types(items: Sequence[str], prompt: str, shown: str | None) -> Sequence[str]:
    """Return the items without definitions of types that the prompt does not give. Records and
    variants stay if their signs are `shown`; None hides nothing."""
    if shown is None:
        return items
    plain_prompt = " ".join(prompt.split())

    def hide(definition: re.Match[str]) -> str:
        body = definition["body"].removeprefix(" =").strip()
        is_given = " ".join(definition[0].split()) in plain_prompt
        is_shown = bool(shown) and (body[:1] in shown or body[:1].isupper() and "." not in body)
        return definition[0] if is_given or is_shown else definition["head"]

    hidden = []
    for item in items:
        if item.startswith(("type", "module ")) and "\nand " not in item:
            item = _ALIAS.sub(hide, item)
        hidden.append(item)
    return hidden
