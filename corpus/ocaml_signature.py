"""The signature of an OCaml task, from its reference answer and its tests: the compiler's own
`ocamlc -i`, cut down."""

from __future__ import annotations

import re

from corpus.drafts import Unusable
from services.graders.ocaml.grader import OcamlGrader
from services.sandbox import Command, Limits

_LIMITS = Limits(cpu_s=5, wall_s=30.0, memory_mb=1024)
_VALUE = re.compile(r"(?:val|external) (?:\( (\S+) \)|([a-z_][\w']*))")
_MODULE = re.compile(r"module (\w+)")


def derive_signature(grader: OcamlGrader, solution: str, tests: str) -> str:
    """Types, exceptions and modules of the solution, and the values that the tests name, as in an
    `.mli`.

    Raises Unusable for a solution that does not compile by itself, and for one that the tests use
    nothing of.
    """
    source = "/box/solution.ml"
    command = Command(
        argv=(grader.toolchain.ocamlc, "-i", "-w", "-a", source),
        limits=_LIMITS,
        files={source: solution.encode()},
        binds=grader.toolchain.compile_binds,
    )
    outcome = grader.sandbox.run(command)
    if outcome.exit_code != 0:
        message = outcome.stderr.decode(errors="replace").replace("/box/", "").strip()
        raise Unusable(f"solution: does not compile by itself: {message[:300]}")
    named = set(re.findall(r"[\w']+|[!$%&*+\-./:<=>?@^|~]+", tests))
    items = re.split(r"\n(?=\S)", outcome.stdout.decode(errors="replace").strip())
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
    return "\n".join(declarations) + "\n"
