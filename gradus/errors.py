"""The three kinds of failure, drawn as a tree. How a failure is shown is the API's and the CLI's
work.

    GradusError ├── Misuse the caller's doing: 4xx on the wire, exit status 2 on the command line,
    never retried └── Fault our failure to judge: no reward, can never be mistaken for a zero
        ├── SandboxFault  a box could not be made, or broke
        ├── DeadlineFault the time that the caller gave ran out before a verdict
        ├── QueueFault    the broker is away, full, or lost a job
        ├── WorkerFault   a worker died or left while it held the job
        └── InternalFault anything else of ours: also a toolchain or a task that fails

A *verdict* is the model's doing and is a value (`gradus.contract.Graded`), never an exception.
To add a fault, add a class with its `kind`; the wire knows only the kinds of `FaultKind`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import ClassVar


class FaultKind(StrEnum):
    SANDBOX = "sandbox"
    DEADLINE = "deadline"
    QUEUE = "queue"
    WORKER = "worker"
    INTERNAL = "internal"


class GradusError(Exception):
    """The root. Catch a subclass: what to do about a misuse and about a fault differs."""


class Misuse(GradusError):
    """A request that cannot be fulfilled; the message names the correct form."""

    status: ClassVar[int] = 422
    """HTTP status that fits this misuse."""


class UnknownGrader(Misuse):
    """No grader has that name."""

    status = 404


class TooLarge(Misuse):
    """A body, a text or a batch is over its limit."""

    status = 413


class Fault(GradusError):
    """Our failure to judge. Raised at its source; graders never build one from a model's
    mistake."""

    kind: ClassVar[FaultKind] = FaultKind.INTERNAL

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


class SandboxFault(Fault):
    kind = FaultKind.SANDBOX


class DeadlineFault(Fault):
    kind = FaultKind.DEADLINE


class QueueFault(Fault):
    kind = FaultKind.QUEUE


class WorkerFault(Fault):
    kind = FaultKind.WORKER


class InternalFault(Fault):
    kind = FaultKind.INTERNAL


@contextmanager
def wrap_exceptions(fault: type[Fault], context: str) -> Iterator[None]:
    """Enter foreign code: a plain exception becomes `fault` with `context` in front, once; ours
    pass through.

    Other places that catch every exception say beside it why: they release what they hold, or must
    go on.
    """
    try:
        yield
    except GradusError:
        raise
    except Exception as error:
        raise fault(f"{context}: {type(error).__name__}: {error}") from error
