"""Which hook hardens the tasks of a grader."""

from __future__ import annotations

from corpus.hardening.engine import Hook
from corpus.hardening.ocaml import OcamlHook
from corpus.hardening.program import ProgramHook
from corpus.hardening.rust import RustHook
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.graders.program.grader import ProgramGrader
from services.graders.rust.grader import RustGrader

HARDENED = ("ocaml", "rust", "program")
"""Graders whose tasks can be hardened."""


def create_hook(grader: Grader) -> Hook:
    """Return the hook of a grader in `HARDENED`."""
    if isinstance(grader, OcamlGrader):
        return OcamlHook(grader.toolchain, grader.sandbox)
    if isinstance(grader, RustGrader):
        return RustHook(grader)
    assert isinstance(grader, ProgramGrader)
    return ProgramHook(grader)
