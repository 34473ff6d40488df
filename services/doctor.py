"""What `gradus doctor` says of the services: sandbox, toolchains, the sentence model, the reward model, Redis."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator

from gradus.doctor import Check, extra, run_check

ELSEWHERE = "graders need Linux: run them in containers (docker compose up) and use their URL; training runs natively"


def signs(redis: str | None) -> Iterator[Check]:
    yield from _in_boxes()
    yield from story_checks()
    yield from preference_checks()
    yield extra("api", "fastapi", "`gradus serve`")
    yield extra("worker", "redis", "`gradus worker`")
    server = shutil.which("redis-server")
    yield Check(
        "redis-server", server is not None, server or "only for many workers: apt-get install redis-server", False
    )
    if redis is not None:
        yield run_check("Redis", lambda: asyncio.run(_ask_redis(redis)))


def _in_boxes() -> Iterator[Check]:
    if sys.platform != "linux":
        yield Check("sandbox", False, ELSEWHERE, needed=False)
        return
    from services.graders.ocaml.toolchain import OcamlToolchain
    from services.graders.rust.toolchain import RustToolchain
    from services.sandbox.bubblewrap import Bubblewrap
    from services.sandbox.escape_probe import refuse_unless_safe

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

    yield run_check("sandbox", sandbox)
    yield run_check("ocaml", ocaml)
    yield run_check("rust", rust, needed=False)


def story_checks() -> Iterator[Check]:
    """The story grader's packages and its model."""
    yield (found := extra("story", "onnxruntime", "the story grader"))
    if not found.fine:
        return
    from services.graders.base.config_loader import read_settings
    from services.graders.story.config import StoryConfig
    from services.graders.story.export import whereabouts

    def model() -> str:
        config = read_settings(StoryConfig, "story")
        return f"{whereabouts(config.model)}; run by {config.backend} in {config.precision}"

    yield run_check("story", model, needed=False)


def preference_checks() -> Iterator[Check]:
    """Check of the preference grader's model, where one is named; loads it and scores nothing."""
    from services.graders.preference.grader import PreferenceGrader

    def model() -> str:
        grader = PreferenceGrader()
        grader.scorer.close()
        return f"{grader.info().toolchain}; reads {grader.model.limit or 'any number of'} tokens of a text"

    yield run_check("preference", model, needed=False)


async def _ask_redis(redis: str) -> str:
    from services.broker.from_url import open_broker

    broker = open_broker(redis)
    try:
        live = ", ".join(f"{info.grader} x {info.workers}" for info in await broker.graders())
        return f"answers; live graders: {live or 'none'}"
    finally:
        await broker.close()
