"""Crates that answers may use, built once by cargo, and the flags by which a compiler finds them.

Files and flags are those of cargo's own call of the compiler for a program that depends on exactly
these crates, so that an answer gets what cargo would give it. An answer can name only the crates of
its task; the compiler alone finds the crates that those need in turn.

Not protected against: the listed crates themselves. Their build scripts and procedural macros run
with the rights of the worker while they are built, and what they export must not undo `-F
unsafe-code` (see REFUSED and `macros`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from gradus.errors import InternalFault, Misuse
from gradus.resources import get_cache_folder
from services.graders.base.config_loader import Section
from services.graders.rust import cargo as cargo_project
from services.graders.rust import macros
from services.graders.rust.cargo import Library, Project
from services.graders.rust.macros import Source

log = logging.getLogger(__name__)

MOUNT = "/opt/gradus-crates"
"""Where boxes see the build, read-only."""

_EARLY = (
    "it runs code before `main`, and so before the harness has taken its secret from standard input"
)
_SYSTEM = "it makes system calls on any descriptor or process safe to call, the report's included"
_MEMORY = "it makes access to any memory safe to call"
_NAMES = "it puts names together from pieces, so that an answer can say what stands nowhere in it"
_FOREIGN = "it brings in code of another language, which nothing checks"
_UNSAFE = "hardly anything in it can be used without `unsafe`, so it could serve attacks only"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("ctor", "dtor", "inventory", "linkme", "small_ctor", "startup", "static_init"), _EARLY
    ),
    **dict.fromkeys(("filedescriptor", "nix"), _SYSTEM),
    **dict.fromkeys(
        ("cve_rs", "fake_static", "read_process_memory", "totally_safe_transmute"), _MEMORY
    ),
    **dict.fromkeys(
        (
            "concat_idents",
            "defile",
            "mashup",
            "paste",
            "pastey",
            "seq_macro",
            "with_builtin_macros",
        ),
        _NAMES,
    ),
    **dict.fromkeys(("cpp", "inline_c", "inline_python"), _FOREIGN),
    **dict.fromkeys(("libc", "libloading", "memmap", "memmap2", "syscalls"), _UNSAFE),
}
"""Crates that no list may have, and why; names with `_`. Short on purpose: macros are searched for
as well."""

_RECORD = "prebuilt.json"


class Crate(Section):
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]*$", max_length=64)]
    version: Annotated[str, Field(pattern=r"^=?\d+\.\d+\.\d+(-[0-9A-Za-z.\-]+)?$")]
    """Exact, such as `1.0.152`: another version is another verdict."""
    features: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_+./?\-]+$")], ...] = ()

    @field_validator("name")
    @classmethod
    def _is_not_refused(cls, name: str) -> str:
        reason = REFUSED.get(_normalize_name(name))
        if reason:
            raise ValueError(f"answers may not have the crate {name}: {reason}")
        return name

    @property
    def dependency(self) -> str:
        """Its line in a Cargo.toml."""
        version = f"={self.version.removeprefix('=')}"
        features = json.dumps(list(self.features))
        return f'{self.name} = {{ version = "{version}", features = {features} }}\n'


class Directory(Section):
    directory: Path
    """Sources as `cargo vendor` or Debian's librust-*-dev lay them out; nothing is downloaded
    then."""

    @field_validator("directory")
    @classmethod
    def _is_absolute(cls, directory: Path) -> Path:
        if not directory.is_absolute():
            raise ValueError("give the whole path, from / on")
        return directory


class Crates(Section):
    """The section `crates` of `configs/graders/rust.yaml`."""

    source: Literal["registry"] | Directory = "registry"
    list: tuple[Crate, ...] = ()
    """What tasks may name. Of crates that these need, cargo takes the newest that fit; to pin them,
    vendor them."""


@dataclass(frozen=True, slots=True)
class Prebuilt:
    """Crates ready for use. The one without a folder is of an empty list."""

    folder: Path | None = None
    """To be seen by boxes that compile, read-only and in one place."""
    revision: str = ""
    """Hash of names, versions, features, the compiler and what cargo locked."""
    externs: Mapping[str, str] = field(default_factory=dict)
    """Name in tasks -> the argument of `--extern`."""
    search: tuple[str, ...] = ()
    """The arguments of `-L`."""

    @property
    def mounts(self) -> dict[str, str]:
        """What a box that compiles sees of them."""
        return {str(self.folder): MOUNT} if self.folder else {}

    def build_flags(self, names: Iterable[str]) -> list[str]:
        """Return what rustc or clippy-driver must be told so that an answer has the crates `names`,
        and no others.

        Raises InternalFault for a crate that is not listed.
        """
        requested = {_normalize_name(name): name for name in names}
        listed = {_normalize_name(name): extern for name, extern in self.externs.items()}
        lacking = [name for key, name in requested.items() if key not in listed]
        if lacking:
            has = ", ".join(sorted(self.externs)) or "none"
            raise InternalFault(
                f"the task needs the crates {', '.join(lacking)}, and this worker has {has}: "
                "list them under `crates` in configs/graders/rust.yaml",
                retryable=False,
            )
        if not requested:
            return []
        flags = [f"-L{place}" for place in self.search]
        return flags + [f"--extern={listed[key]}" for key in requested]


def build(crates: Crates, rustc: Path, cargo: Path) -> Prebuilt:
    """Return the crates as they are in the cache, built first if they are not there; one process
    builds, others wait.

    Raises Misuse for a list that cannot be allowed, InternalFault, with cargo's words, for one that
    does not build.
    """
    if not crates.list:
        return Prebuilt()
    about = subprocess.run(
        [rustc, "-vV"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    key = _compute_key(crates, about)
    target = get_cache_folder() / f"rust-crates-{about.split()[1]}-{key}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        nullcontext() if target.exists() else _lock_target(target)
    ):  # the cache of an image is read-only
        if not target.exists():
            named = ", ".join(f"{entry.name} {entry.version}" for entry in crates.list)
            log.info("building for Rust answers, once: %s", named)
            directory = getattr(crates.source, "directory", None)
            dependencies = "".join(crate.dependency for crate in crates.list)
            folder = Path(f"{target}.building")
            shutil.rmtree(folder, ignore_errors=True)  # left by a build that was killed
            folder.mkdir(mode=0o755)
            try:
                _build(Project(folder, dependencies, directory, rustc, cargo), about, key)
                folder.rename(target)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    record = json.loads((target / _RECORD).read_text())
    return Prebuilt(target, record["revision"], record["externs"], tuple(record["search"]))


def _normalize_name(name: str) -> str:
    """`serde-json` and `serde_json` are one crate to cargo and to the compiler."""
    return name.replace("-", "_")


def _compute_key(crates: Crates, about: str) -> str:
    digest = hashlib.sha256()
    for path in (Path(__file__), Path(macros.__file__), Path(cargo_project.__file__)):
        digest.update(path.read_bytes())
    digest.update(f"{about}\0{crates.model_dump_json()}\0".encode())
    if isinstance(crates.source, Directory):
        for checksum in sorted(_find_checksums(crates.source.directory)):
            digest.update(f"{checksum.parent.name}\0".encode() + checksum.read_bytes())
    return digest.hexdigest()[:16]


def _find_checksums(directory: Path) -> list[Path]:
    """Return the files by which cargo knows the crates of a directory, one each."""
    checksums = list(directory.glob("*/.cargo-checksum.json"))
    if not checksums:
        raise Misuse(
            f"crates.source.directory: {directory} has no crates. It should be what `cargo vendor`"
            " made, or /usr/share/cargo/registry with packages such as librust-serde-dev"
        )
    return checksums


@contextmanager
def _lock_target(target: Path) -> Iterator[None]:
    with open(f"{target}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(project: Project, about: str, key: str) -> None:
    """Build the libraries and record in the project's folder how to use them from `MOUNT`."""
    host = re.search(r"^host: (.*)$", about, re.MULTILINE)
    named, libraries = project.read_libraries(host[1] if host else "")
    _refuse_what_undoes_the_ban(named, libraries)
    call = project.build()
    folder = project.folder
    externs = {}
    for name, path in call.externs.items():
        externs[libraries[named[name]].package] = f"{name}={MOUNT}/{path.relative_to(folder)}"
    search = [place.replace(str(folder), MOUNT) for place in call.search]
    lock = (folder / "Cargo.lock").read_bytes()
    revision = hashlib.sha256(key.encode() + lock).hexdigest()[:12]
    record = {"revision": revision, "externs": externs, "search": search}
    (folder / _RECORD).write_text(json.dumps(record, indent=1))
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)


def _refuse_what_undoes_the_ban(named: Mapping[str, str], libraries: Mapping[str, Library]) -> None:
    """Raise Misuse for a crate through which an answer could have `unsafe`, or one that no list may
    have."""
    for name in named:
        for library, source in _iter_reachable(named[name], libraries):
            if library is libraries[named[name]]:
                through = name
            else:
                through = f"{name}, which passes on {library.package}"
            reason = REFUSED.get(_normalize_name(library.package))
            if reason:
                raise Misuse(f"crates.list: answers may not have {through}: {reason}")
            macro_names = source.find_unsafe_macros()
            if macro_names:
                macro_list = ", ".join(f"{macro}!" for macro in macro_names)
                raise Misuse(
                    f"crates.list: {through}, has macros with `unsafe` in them ({macro_list}),"
                    " which the compiler allows in answers: leave the crate out"
                )


def _iter_reachable(
    start: str, libraries: Mapping[str, Library]
) -> Iterator[tuple[Library, Source]]:
    """Yield a library and those that it lets others use through itself."""
    waiting = [start]
    visited = {start}
    while waiting:
        library = libraries[waiting.pop()]
        source = Source(library.root_file, procedural=library.procedural)
        yield library, source
        reexported = []
        for name in source.list_reexported_crates(library.needs):
            if library.needs[name] in libraries:
                reexported.append(library.needs[name])
        waiting += [package for package in reexported if package not in visited]
        visited.update(reexported)
