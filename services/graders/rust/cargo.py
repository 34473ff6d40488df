"""A project that depends on given crates, and what cargo says of it: its libraries, and how it
calls the compiler.

Knows nothing of answers and keeps nothing: the project lives in a folder of the caller's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradus.errors import InternalFault

_NAME = "gradus_template"
_SETTINGS = """\
[profile.dev]
opt-level = 0
debug = 0
debug-assertions = true
overflow-checks = true
panic = "unwind"
incremental = false
"""
"""cargo's `dev` profile without debug information, which is of no use here; it wins over what a
user has set."""
_KEPT = ("CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "RUSTUP_")
_LIBRARY_KINDS = frozenset({"lib", "rlib", "dylib", "proc-macro"})
_TIMEOUT_S = 3600


@dataclass(frozen=True, slots=True)
class Library:
    """A crate that the project, or one of its libraries, depends on."""

    package: str
    root_file: Path
    procedural: bool
    needs: Mapping[str, str]
    """Name in its sources -> id of the library."""


@dataclass(frozen=True, slots=True)
class CompilerInvocation:
    """The arguments with which cargo called the compiler for the project itself."""

    externs: Mapping[str, Path]
    """Name in sources -> library."""
    search: tuple[str, ...]
    """The arguments of `-L`: `dependency=/folder`, `native=/folder`."""


class Project:
    """`dependencies`: the lines of that section. `directory`: the only source of crates; without
    one, cargo's own."""

    def __init__(
        self, folder: Path, dependencies: str, directory: Path | None, rustc: Path, cargo: Path
    ) -> None:
        self.folder = folder
        self._command = [str(cargo), "--config", str(folder / "settings.toml")]
        self._offline = ["--offline"] if directory else []
        # Without what would change how crates are built; where crates come from is the user's to
        # say.
        self._environment = {}
        for name, value in os.environ.items():
            if not name.startswith(("CARGO", "RUST")) or name.startswith(_KEPT):
                self._environment[name] = value
        self._environment |= dict.fromkeys(
            ("CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"), ""
        )
        self._environment |= {"RUSTC": str(rustc), "CARGO_TERM_COLOR": "never"}
        settings = _SETTINGS
        if directory:
            # No file of the user's is read or written then: cargo gets a home of its own.
            self._environment["CARGO_HOME"] = str(folder / "home")
            settings += '[source.crates-io]\nreplace-with = "directory"\n'
            settings += f"[source.directory]\ndirectory = {json.dumps(str(directory))}\n"
        package = (
            f'[package]\nname = "{_NAME}"\nversion = "0.0.0"\nedition = "2021"\n\n[workspace]\n\n'
        )
        (folder / "src").mkdir()
        (folder / "src" / "main.rs").write_text("fn main() {}\n")
        (folder / "settings.toml").write_text(settings)
        (folder / "Cargo.toml").write_text(f"{package}[dependencies]\n{dependencies}")

    def read_libraries(self, host: str) -> tuple[Mapping[str, str], Mapping[str, Library]]:
        """Return what the project itself names, name -> id; and all its libraries by id."""
        metadata = json.loads(
            self._run("metadata", "--format-version=1", f"--filter-platform={host}").stdout
        )
        packages = {package["id"]: package for package in metadata["packages"]}
        libraries = {}
        needs = {}
        for node in metadata["resolve"]["nodes"]:
            name = node["id"]
            needs[name] = {need["name"]: need["pkg"] for need in node["deps"]}
            for target in packages[name]["targets"]:
                if _LIBRARY_KINDS & set(target["kind"]):
                    source = Path(target["src_path"])
                    procedural = "proc-macro" in target["kind"]
                    crate = packages[name]["name"]
                    libraries[name] = Library(crate, source, procedural, needs[name])
                    break
        return needs[metadata["resolve"]["root"]], libraries

    def build(self) -> CompilerInvocation:
        output = self._run("build", "--verbose", f"--target-dir={self.folder / 'target'}").stderr
        line = re.search(rf"Running `(.* --crate-name {_NAME} .*)`", output)
        if line is None:
            raise InternalFault("cargo does not say how it calls the compiler", retryable=False)
        arguments = shlex.split(line[1])
        pairs = list(zip(arguments, arguments[1:], strict=False))
        externs = (value.partition("=") for flag, value in pairs if flag == "--extern")
        search = (value for flag, value in pairs if flag == "-L")
        return CompilerInvocation(
            {name: Path(path) for name, _, path in externs}, tuple(dict.fromkeys(search))
        )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._command, *arguments, *self._offline],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        if done.returncode != 0:
            message = done.stderr[max(0, done.stderr.find("error")) :].strip()
            raise InternalFault(
                f"the crates of the Rust grader could not be built: {message[:3000]}",
                retryable=False,
            )
        return done
