"""The limit of open files of this process (`ulimit -n`)."""

from __future__ import annotations

import resource
import sys

from gradus.errors import Misuse

LEAST_OPEN_FILES = 256
"""Fewest open files of a service: its connections to Redis need 64, and a box may open as many as
this itself."""
WANTED_OPEN_FILES = 65_536


def raise_open_files() -> int:
    """Raise the limit to `WANTED_OPEN_FILES` or as far as it may be. Returns it. Raises Misuse
    below the least."""
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = (
        WANTED_OPEN_FILES
        if hard_limit == resource.RLIM_INFINITY
        else min(WANTED_OPEN_FILES, hard_limit)
    )
    if limit != resource.RLIM_INFINITY and limit < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard_limit))
        limit = target
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    if limit < LEAST_OPEN_FILES:
        raise Misuse(
            f"this process may open {limit} files, and needs {LEAST_OPEN_FILES} or more: raise the"
            " limit with `ulimit -n 1024`, `LimitNOFILE=` of a systemd unit or `--ulimit"
            " nofile=1024` of a container"
        )
    return limit
