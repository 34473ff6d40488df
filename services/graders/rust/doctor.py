"""What this machine has for the Rust grader, for `gradus doctor`."""

from __future__ import annotations

import sys

from gradus.errors import InternalFault
from services.graders.rust.toolchain import RustToolchain


def look() -> str:
    if sys.platform != "linux":
        raise InternalFault("the Rust grader needs Linux", retryable=False)
    toolchain = RustToolchain()
    return (
        f"{toolchain.version} with clippy in {toolchain.sysroot}, linked by rust-lld, "
        f"harness built in {toolchain.harness.parent}"
    )
