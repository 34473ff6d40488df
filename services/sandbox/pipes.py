"""A pipe whose ends are closed once each."""

from __future__ import annotations

import os


class Pipe:
    """A pipe whose ends are each closed once: with threads, a number closed twice may by then be
    another file's."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self._open = {self.read, self.write}

    def close(self, *ends: int) -> None:
        for end in self._open & set(ends or self._open):
            self._open.discard(end)
            os.close(end)

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
