"""What this machine has for the OCaml grader, for `gradus doctor`."""

from __future__ import annotations

import sys

from gradus.errors import InternalFault
from services.graders.ocaml.toolchain import OcamlToolchain

NEEDED = sys.platform == "linux"


def look() -> str:
    if sys.platform != "linux":
        raise InternalFault("the OCaml grader needs Linux", retryable=False)
    toolchain = OcamlToolchain()
    return f"{toolchain.version}, front built in {toolchain.build}"
