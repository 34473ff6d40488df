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

    engine = "gradus: the syntax tree of OCaml"

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
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in (Path(__file__), *SOURCES)))
    target = cache() / f"ocaml-mutations-{toolchain.version}-{digest.hexdigest()[:16]}"
    if (target / PROGRAM).exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as name:
        folder = Path(name) / "build"
        folder.mkdir(mode=0o755)
        for source in SOURCES:
            shutil.copy(source, folder)
        _compile(toolchain, folder)
        try:
            folder.rename(target)
        except OSError:
            if not (target / PROGRAM).exists():  # a concurrent process may have built it
                raise
    return target


def _compile(toolchain: OcamlToolchain, folder: Path) -> None:
    beside = str(Path(toolchain.ocamlc).parent)
    compiler = next(
        (path for one in ("ocamlopt.opt", "ocamlopt") if (path := shutil.which(one, path=beside))),
        None,
    )
    if compiler is None:
        raise InternalFault(
            f"breaking OCaml code needs ocamlopt beside {toolchain.ocamlc}", retryable=False
        )
    # from 5.0 on these libraries have folders of their own
    folders = [part for name in ("unix", "str", "compiler-libs") for part in ("-I", f"+{name}")]
    sources = [path.name for path in SOURCES]
    command = [
        compiler,
        "-w",
        "-a",
        *folders,
        "str.cmxa",
        "ocamlcommon.cmxa",
        *sources,
        "-o",
        PROGRAM,
    ]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode != 0:
        message = (
            f"the program that breaks OCaml code cannot be built with OCaml {toolchain.version}"
        )
        raise InternalFault(f"{message}: {done.stderr.strip()[-2000:]}", retryable=False)
    (folder / PROGRAM).chmod(0o755)
