"""Which of several training processes this is (`accelerate launch`, `torchrun`). Starts no process
group itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gradus.errors import GradusError, InternalFault

log = logging.getLogger("gradus.train")

Item = TypeVar("Item")


def is_leader() -> bool:
    """True in the one process that writes the run folder; with a single process, in that one."""
    return os.environ.get("RANK", "0") == "0"


def get_local_rank() -> int:
    """Return which of this machine's processes this is, and so which of its GPUs is its own."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def has_process_group() -> bool:
    """Return whether this process has joined a group with which it can communicate."""
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()


def is_any_rank_true(mine: bool) -> bool:
    """True everywhere once it is true anywhere; all processes must ask at the same place."""
    import torch

    if not has_process_group():
        return mine
    backend_device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    flag = torch.tensor(float(mine), device=backend_device)
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


def count_processes() -> int:
    """Training processes of this run, at least 1."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def select_share(items: Sequence[Item]) -> Sequence[Item]:
    """Return every n-th of the items, of n processes, from this process's own place on."""
    return items[int(os.environ.get("RANK", "0")) :: count_processes()]


def collect_from_ranks(mine: Item) -> list[Item]:
    """Return what all processes gave, in the order of their ranks; all must come here at the same
    place."""
    import torch

    everyone: list[Any] = [None] * count_processes()
    torch.distributed.all_gather_object(everyone, mine)
    return everyone


def wait_for_all() -> None:
    """Return when every process has come here."""
    is_any_rank_true(False)


def run_on_all_ranks(work: Callable[[], Item]) -> Item:
    """Return what `work` returns in this process, or raise in all processes what it raised in one.

    For what a process does by itself between two collective operations: if it left alone, the
    others would wait for it in the next one. All processes must come here at the same place. The
    error of the lowest rank counts; where there are several processes, one that is no GradusError
    becomes an InternalFault.
    """
    if not has_process_group():
        return work()
    results = []
    error: GradusError | None = None
    try:
        results.append(work())
    except GradusError as raised:
        error = raised
    except Exception as raised:  # noqa: BLE001 - whatever it is, the other processes must end too
        error = describe_failure(f"rank {os.environ.get('RANK', '0')}", raised)
    raise_on_all_ranks(error)
    return results[0]


def raise_on_all_ranks(error: GradusError | None) -> None:
    """Raise in all processes the error of the lowest rank that has one. All must come here at the
    same place."""
    errors = [error]
    if has_process_group():
        errors = collect_from_ranks(error)
    for raised in errors:
        if raised is not None:
            raise raised


def describe_failure(what: str, error: Exception) -> InternalFault:
    """Return the fault that stands for an error which nothing expected, with its traceback in the
    log: an exception of any class cannot be sent to another process."""
    log.error("%s failed", what, exc_info=error)
    return InternalFault(f"{what} failed: {type(error).__name__}: {error}", retryable=False)
