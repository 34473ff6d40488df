"""What the installed wings add to the ground floor, found by entry points, so that nothing here imports a wing by name.

| group | object |
|---|---|
| `gradus.commands` | `register(app)`: adds a wing's commands to the command line |
| `gradus.menu` | tuple of `gradus.interactive.MenuItem` |
| `gradus.doctor` | `signs(redis)`: iterator of `gradus.doctor.Check` |
| `gradus.reports` | `write_report(out, folders, compare)`: the page of a run, evaluation or comparison as a file |
| `gradus.local` | `open_local(grader, config, slots)`: a `gradus.local.LocalGrader` |
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any


def found_in(group: str) -> list[EntryPoint]:
    """Entry points of the group, ordered by name; not loaded."""
    return sorted(entry_points(group=group), key=lambda entry: entry.name)


def loaded_from(group: str) -> list[Any]:
    """Objects of the group's entry points, ordered by name. Raises ImportError where a wing is broken."""
    return [entry.load() for entry in found_in(group)]


def packages() -> frozenset[str]:
    """Top-level packages of Gradus and of the installed wings."""
    return frozenset({"gradus", *(entry.module.partition(".")[0] for entry in found_in("gradus.commands"))})
