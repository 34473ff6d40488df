"""What `gradus doctor` says of the services: sandbox, every installed grader, packages, Redis.

A grader's folder may hold a module `doctor` with `look() -> str`: what this machine has for the
grader, in words; it raises Fault for what is missing. `NEEDED`: whether a machine without it lacks
something, default False. `PACKAGE`: a package that comes with the extra of the grader's name. Other
graders are made, and describe their toolchain.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import find_spec

from gradus.doctor import Check, check_extra, run_check

ELSEWHERE = (
    "graders need Linux: run them in containers (docker compose up) and use their URL; training"
    " runs natively"
)


def signs(redis: str | None) -> Iterator[Check]:
    from services.graders.base import find_installed_graders

    if sys.platform == "linux":
        yield run_check("sandbox", _attack_sandbox)
    else:
        yield Check("sandbox", False, ELSEWHERE, needed=False)
    for grader in find_installed_graders().values():
        yield from check_grader(grader)
    yield check_extra("api", "fastapi", "`gradus serve`")
    yield check_extra("worker", "redis", "`gradus worker`")
    server = shutil.which("redis-server")
    yield Check(
        "redis-server",
        server is not None,
        server or "only for many workers: apt-get install redis-server",
        False,
    )
    if redis is not None:
        yield run_check("Redis", lambda: asyncio.run(_ask_redis(redis)))


def _attack_sandbox() -> str:
    from services.sandbox.bubblewrap import Bubblewrap
    from services.sandbox.escape_probe import refuse_unless_safe

    refuse_unless_safe(Bubblewrap())
    return f"bubblewrap, as user {os.geteuid()}; every attack of the probe failed"


def check_grader(grader: EntryPoint) -> Iterator[Check]:
    """Checks of what the grader needs on this machine; nothing is graded."""
    from services.graders.base import load

    folder = grader.module.rpartition(".")[0]
    if not folder or find_spec(f"{folder}.doctor") is None:
        yield run_check(grader.name, lambda: load(grader.name).info().toolchain, needed=False)
        return
    doctor = import_module(f"{folder}.doctor")
    if package := getattr(doctor, "PACKAGE", None):
        yield (check := check_extra(grader.name, package, f"the {grader.name} grader"))
        if not check.fine:
            return
    yield run_check(grader.name, doctor.look, getattr(doctor, "NEEDED", False))


async def _ask_redis(redis: str) -> str:
    from services.broker.from_url import open_broker

    broker = open_broker(redis)
    try:
        live = ", ".join(f"{info.grader} x {info.workers}" for info in await broker.graders())
        return f"answers; live graders: {live or 'none'}"
    finally:
        await broker.close()
