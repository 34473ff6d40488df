"""`Sign`: one thing that the doctor looked at, and how a look that fails becomes one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gradus.errors import GradusError


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that was looked at."""

    what: str
    fine: bool
    text: str
    """What is there; where it is missing also what to do about it."""
    needed: bool = True
    """False: some uses do without it."""
    details: dict[str, Any] = field(default_factory=dict)
    """The same for programs."""

    def __str__(self) -> str:
        mark = "ok  " if self.fine else ("MISS" if self.needed else "--  ")
        return f"{mark} {self.what}: {self.text}"


def tried(what: str, look: Callable[[], str], needed: bool = True) -> Sign:
    """What `look` says, or why it could not: one broken library must not hide what else there is."""
    try:
        return Sign(what, True, look())
    except (GradusError, ImportError, OSError, RuntimeError) as error:
        return Sign(what, False, str(error).strip() or type(error).__name__, needed)


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def extra(name: str, module: str, use: str) -> Sign:
    """Whether the packages of one of our extras are there."""
    found = is_installed(module)
    text = "installed" if found else f"{use} needs it: pip install 'gradus[{name}]'"
    return Sign(f"extra {name}", found, text, False)
