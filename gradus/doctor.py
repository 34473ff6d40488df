"""`gradus doctor`: looks at this machine and says what to do about what is missing. Changes nothing."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gradus.errors import GradusError


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that was looked at."""

    what: str
    fine: bool
    text: str
    needed: bool = True
    """False: some uses do without it."""


def examine(redis: str | None = None, url: str | None = None) -> int:
    """Print what was found; 0 when all that is needed is there, else 1."""
    bad = 0
    for sign in signs(redis, url):
        mark = "ok  " if sign.fine else ("MISS" if sign.needed else "--  ")
        print(f"{mark} {sign.what}: {sign.text}", flush=True)
        bad += sign.needed and not sign.fine
    return 1 if bad else 0


def signs(redis: str | None, url: str | None) -> Iterator[Sign]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = ".".join(map(str, sys.version_info[:3]))
    yield Sign("machine", True, f"{platform.platform()}, {cores} cores, {memory_gb:.0f} GiB, Python {python}")
    yield from _grader()
    yield from _story()
    yield _extra("api", "fastapi", "`gradus serve`")
    yield _extra("worker", "redis", "`gradus worker`")
    yield from _training()
    if redis is not None:
        yield _tried("Redis", lambda: asyncio.run(_ask_redis(redis)))
    if url is not None:
        yield _tried("service", lambda: asyncio.run(_ask_service(url)))


def _grader() -> Iterator[Sign]:
    if sys.platform != "linux":
        yield Sign("sandbox", False, "graders need Linux: run them in containers (docker compose up) and use their URL")
        return
    from services.graders.ocaml.toolchain import OcamlToolchain
    from services.graders.rust.toolchain import RustToolchain
    from services.sandbox.bubblewrap import Bubblewrap
    from services.sandbox.probe import refuse_unless_safe

    def sandbox() -> str:
        refuse_unless_safe(Bubblewrap())
        return f"bubblewrap, as user {os.geteuid()}; every attack of the probe failed"

    def ocaml() -> str:
        toolchain = OcamlToolchain()
        return f"{toolchain.version}, front built in {toolchain.build}"

    def rust() -> str:
        toolchain = RustToolchain()
        linker = "rust-lld" if "-Clinker-flavor=ld.lld" in toolchain.link_flags else "cc"
        return (
            f"{toolchain.version} with clippy in {toolchain.sysroot}, linked by {linker}, "
            f"harness built in {toolchain.harness.parent}"
        )

    yield _tried("sandbox", sandbox)
    yield _tried("ocaml", ocaml)
    yield _tried("rust", rust, needed=False)


def _story() -> Iterator[Sign]:
    yield (extra := _extra("story", "onnxruntime", "the story grader"))
    if not extra.fine:
        return
    from services.graders.story.config import load_config
    from services.graders.story.model import whereabouts

    def model() -> str:
        config = load_config()
        return f"{whereabouts(config.model)}; run by {config.backend} in {config.precision}"

    yield _tried("story", model, needed=False)


def _training() -> Iterator[Sign]:
    yield (trl := _extra("train", "trl", "`gradus train`"))
    if not trl.fine:
        return
    import torch

    if torch.cuda.is_available():
        device = torch.cuda.get_device_properties(0)
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16"
        yield Sign("device", True, f"CUDA: {device.name}, {device.total_memory / 2**30:.0f} GiB, {bf16}")
    elif torch.backends.mps.is_available():
        yield Sign("device", True, "MPS (Apple Silicon): fp32 unless the config asks for more")
    else:
        yield Sign("device", True, f"CPU, torch {torch.__version__}: fine for the demo, slow for real models")


def _extra(extra: str, module: str, use: str) -> Sign:
    found = importlib.util.find_spec(module) is not None
    return Sign(
        f"extra {extra}", found, "installed" if found else f"{use} needs it: pip install 'gradus[{extra}]'", False
    )


def _tried(what: str, look: Callable[[], str], needed: bool = True) -> Sign:
    try:
        return Sign(what, True, look())
    except GradusError as error:
        return Sign(what, False, str(error), needed)


async def _ask_redis(redis: str) -> str:
    from services.broker.open import open_broker

    broker = open_broker(redis)
    try:
        live = ", ".join(f"{info.grader} x {info.workers}" for info in await broker.graders())
        return f"answers; live graders: {live or 'none'}"
    finally:
        await broker.close()


async def _ask_service(url: str) -> str:
    from gradus.client import RewardClient

    async with RewardClient(url) as client:
        live = ", ".join(info.grader for info in await client.graders())
        return f"{url} answers; live graders: {live or 'none'}"
