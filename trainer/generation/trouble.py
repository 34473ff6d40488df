"""The two ways in which a generation server can fail a run: another try may mend it, or none will. Decides neither."""

from __future__ import annotations

from gradus.errors import GradusError


class ServerTrouble(Exception):
    """The server is away, broke off, or answered nonsense: worth another try once it is there again."""


class GenerationStopped(GradusError):
    """Completions cannot be had; the message names the server and says what to do."""
