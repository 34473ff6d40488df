"""Where OCaml code can be broken: asks `ocaml/mutations.ml`, built once per compiler, run in a box.
Judges nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from corpus.mutation import Edit
from gradus.errors import InternalFault
from gradus.resources import cache
from services.graders.ocaml.toolchain import HERE as GRADER
from services.graders.ocaml.toolchain import OcamlToolchain
from services.sandbox import Command, Limits, Sandbox

SOURCES = (GRADER / "front" / "wire.ml", Path(__file__).parent / "ocaml" / "mutations.ml")
PROGRAM = "mutations"
_PLACE = "/opt/gradus-mutations"
_LIMITS = Limits(cpu_s=10, wall_s=60.0, memory_mb=1024, processes=4, scratch_mb=0, report_kb=8192)


class OcamlMutations:
    """Raises InternalFault when the program cannot be built."""

    def __init__(self, toolchain: OcamlToolchain, sandbox: Sandbox) -> None:
        self._toolchain = toolchain
        self._sandbox = sandbox
        self._build = _build(toolchain)

    def edits(self, source: str, edition: str = "") -> list[Edit]:
        """Every edit of `source`; none when it does not parse. Raises Fault when the program says
        nothing."""
        data = source.encode()
        command = Command(
            argv=(f"{_PLACE}/{PROGRAM}",),
            limits=_LIMITS,
            stdin=data,
            binds=self._toolchain.run_binds,
            mounts={str(self._build): _PLACE},
            environment=self._toolchain.environment,
        )
        outcome = self._sandbox.run(command)
        try:
            reply = json.loads(outcome.report)
        except ValueError:
            said = outcome.stderr.decode(errors="replace").strip()[-500:]
            raise InternalFault(
                f"the program that breaks OCaml code said nothing: {outcome.exit_reason}: {said}"
            ) from None
        return [_edit(one, data) for one in reply] if isinstance(reply, list) else []


def _edit(said: dict[str, Any], data: bytes) -> Edit:
    """The program counts bytes, and texts are cut by characters."""
    start, end = (len(data[: said[name]].decode(errors="replace")) for name in ("start", "end"))
    return Edit(said["kind"], start, end, said["text"])


def _build(toolchain: OcamlToolchain) -> Path:
    """Return the folder of the program, built once per compiler."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in (Path(__file__), *SOURCES)))
    target = cache() / f"ocaml-mutations-{toolchain.version}-{digest.hexdigest()[:16]}"
    if (target / PROGRAM).exists():
        return target
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as name:
        for source in SOURCES:
            shutil.copy(source, name)
        # from 5.0 on these libraries have folders of their own
        flags = ["-w", "-a", "-I", "+unix", "-I", "+str", "-I", "+compiler-libs"]
        libraries = ["str.cmxa", "ocamlcommon.cmxa"]
        command = [_compiler(toolchain), *flags, *libraries, *(path.name for path in SOURCES)]
        done = subprocess.run(
            [*command, "-o", PROGRAM],
            cwd=name,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode != 0:
            raise InternalFault(
                "the program that breaks OCaml code cannot be built with OCaml"
                f" {toolchain.version}: {done.stderr.strip()[-2000:]}",
                retryable=False,
            )
        (Path(name) / PROGRAM).chmod(0o755)
        (Path(name) / PROGRAM).replace(target / PROGRAM)
    return target


def _compiler(toolchain: OcamlToolchain) -> str:
    beside = str(Path(toolchain.ocamlc).parent)
    found = shutil.which("ocamlopt.opt", path=beside) or shutil.which("ocamlopt", path=beside)
    if found is None:
        raise InternalFault(
            f"breaking OCaml code needs ocamlopt beside {toolchain.ocamlc}", retryable=False
        )
    return found
