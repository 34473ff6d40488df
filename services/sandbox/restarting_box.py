"""A persistent box that is made when it is first needed, and again after it was lost."""

from __future__ import annotations

from gradus.errors import SandboxFault
from services.sandbox import BoxLost, Command, Exchange, PersistentBox, Sandbox


class RestartingBox:
    """One box around `command` at a time. `name` is how faults call it, for example `the compile server`."""

    def __init__(self, sandbox: Sandbox, command: Command, name: str) -> None:
        self._sandbox = sandbox
        self._command = command
        self._name = name
        self._box: PersistentBox | None = None

    def ask(self, question: bytes, wall_s: float) -> Exchange:
        """Raises SandboxFault when the box cannot be made, or is lost over this question."""
        self._box = self._box or self._sandbox.open(self._command)
        try:
            return self._box.ask(question, wall_s)
        except BoxLost as lost:
            self._box = None
            raise SandboxFault(f"{self._name} was lost: {lost}") from None

    def close(self) -> None:
        if self._box is not None:
            self._box.close()
            self._box = None
