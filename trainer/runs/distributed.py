"""Which of several training processes this is (`accelerate launch`, `torchrun`). Starts no process
group itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


def is_leader() -> bool:
    """True in the one process that writes the run folder; with a single process, in that one."""
    return os.environ.get("RANK", "0") == "0"


def get_local_rank() -> int:
    """Return which of this machine's processes this is, and so which of its GPUs is its own."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_any_rank_true(mine: bool) -> bool:
    """True everywhere once it is true anywhere; all processes must ask at the same place."""
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
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
