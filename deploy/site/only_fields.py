"""An extension of griffe, which reads Python for mkdocstrings: settings without their methods."""

from __future__ import annotations

from typing import Any

import griffe

MODULES = ("trainer.config.", "services.", "gradus.tasks.")
"""Where classes are files of settings or tasks: a reader wants their fields and nothing else."""


class OnlyFields(griffe.Extension):
    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Remove methods and properties of a class of settings."""
        if not cls.path.startswith(MODULES):
            return
        for name, member in list(cls.members.items()):
            if not member.is_attribute or "property" in member.labels:
                del cls.members[name]
