"""Entry points of the installed wings: what they add to `gradus`, which imports no wing by name.

| group | object | |---|---| | `gradus.commands` | `register(app)`: adds a wing's commands to the
command line | | `gradus.menu` | tuple of `gradus.interactive.MenuItem` | | `gradus.doctor` |
`signs(redis)`: iterator of `gradus.doctor.Check` | | `gradus.reports` | `write_report(out, folders,
compare)`: the page of a run, evaluation or comparison as a file | | `gradus.comparisons` |
`comparisons(before, after)`: what changed between two files of figures, as the page takes it | |
`gradus.local` | `open_local(grader, config, slots)`: a `gradus.local.LocalGrader` |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gradus.errors import Misuse

WINGS = frozenset({"corpus", "services", "tools", "trainer"})
"""Packages of a checkout, which stand beside `gradus`."""


def find_entry_points(group: str) -> list[EntryPoint]:
    """Return entry points of the group whose module is installed, ordered by name; not loaded.

    The wheel registers the entry points of every wing and contains none: the wings run from a
    checkout.
    """
    return sorted(
        filter(_is_installed, set(entry_points(group=group))), key=lambda entry: entry.name
    )


def _is_installed(entry: EntryPoint) -> bool:
    top = entry.module.partition(".")[0]
    if top in WINGS and not (Path(__file__).parents[1] / top / "__init__.py").exists():
        return False  # a package of that name elsewhere belongs to another project
    try:
        return find_spec(entry.module) is not None
    except ModuleNotFoundError as missing:
        # A package around the module is absent, or one of these packages needs another one: loading
        # it names that one.
        return not f"{entry.module}.".startswith(f"{missing.name}.")


def load_entry_points(group: str) -> list[Any]:
    """Return objects of the group's entry points, ordered by name. Raises ImportError where a wing
    is broken."""
    return [entry.load() for entry in find_entry_points(group)]


def write_page(
    out: Path, folders: Sequence[Path], compare: Callable[..., Any] | None = None
) -> None:
    """Write the page of one folder, or of two evaluations, by the wing that has it. Raises Misuse
    without that wing."""
    writers = load_entry_points("gradus.reports")
    if not writers:
        raise Misuse("nothing that writes reports is installed: install Gradus with its services")
    writers[0](out, folders, compare)
