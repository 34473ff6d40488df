"""Where OCaml code can be broken: runs `ocaml/mutations.ml` on it by OCaml's toplevel, in a box."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpus.mutation import Edit
from gradus.errors import InternalFault
from services.graders.ocaml.toolchain import HERE as GRADER
from services.graders.ocaml.toolchain import OcamlToolchain
from services.sandbox import Command, Limits, Sandbox

_WIRE = GRADER / "front" / "wire.ml"
_MUTATIONS = Path(__file__).parent / "ocaml" / "mutations.ml"
_SCRIPT = "/box/mutations.ml"
# from 5.0 on these libraries have folders of their own
_LIBRARIES = ("-I", "+str", "-I", "+compiler-libs", "str.cma", "ocamlcommon.cma")
_LIMITS = Limits(cpu_s=10, wall_s=60.0, memory_mb=1024, processes=4, scratch_mb=0, report_kb=8192)


class OcamlMutations:
    """Mutations by the syntax tree of OCaml."""

    def __init__(self, toolchain: OcamlToolchain, sandbox: Sandbox) -> None:
        self._toolchain = toolchain
        self._sandbox = sandbox
        script = f"module Wire = struct\n{_WIRE.read_text()}\nend\n{_MUTATIONS.read_text()}"
        self._script = script.encode()

    def find_edits(self, source: str, task: Mapping[str, Any] = {}) -> list[Edit]:
        """Return every edit of `source`; none when it does not parse. Raises Fault when the program
        says nothing."""
        data = source.encode()
        toplevel = str(Path(self._toolchain.ocamlc).with_name("ocaml"))
        command = Command(
            argv=(toplevel, "-noinit", "-w", "-a", *_LIBRARIES, _SCRIPT),
            limits=_LIMITS,
            stdin=data,
            files={_SCRIPT: self._script},
            binds=self._toolchain.compile_binds,
            environment=self._toolchain.environment,
        )
        outcome = self._sandbox.run(command)
        try:
            reply = json.loads(outcome.report)
        except ValueError:
            message = outcome.stderr.decode(errors="replace").strip()[-500:]
            raise InternalFault(
                f"the program that breaks OCaml code said nothing: {outcome.exit_reason}: {message}"
            ) from None
        if not isinstance(reply, list):
            return []
        edits = []
        for record in reply:  # the program counts bytes, and texts are cut by characters
            start = len(data[: record["start"]].decode(errors="replace"))
            end = len(data[: record["end"]].decode(errors="replace"))
            edits.append(Edit(record["kind"], start, end, record["text"]))
        return edits
