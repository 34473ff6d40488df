"""The Rust that is installed here, and our harness and compile server built for it.

Boxes see it in one fixed place, so that nothing of this machine is in what is compiled. The linker
is called directly and the standard library is linked dynamically: both are cheaper than cargo's way
and change no verdict.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from gradus.errors import InternalFault
from gradus.resources import get_cache_folder
from services.graders.rust.crates import Crates, Prebuilt, build

HARNESS = Path(__file__).parent / "harness" / "gradus_harness.rs"
HARNESS_CRATE = "gradus_harness"
ROOT = "/opt/gradus-rust"
"""Where boxes see the toolchain, below it the harness and the shared standard library."""
SERVER_SOURCE = Path(__file__).parent / "server" / "compile_server.c"
SERVER = f"{ROOT}/server/compile_server.so"
"""Where boxes see it."""
_LIBRARY = f"{ROOT}/harness/lib{HARNESS_CRATE}.rlib"
_STD = f"{ROOT}/std"
_INSTALL = "install Rust with rustup (https://rustup.rs) and then: rustup component add clippy"
_CODE = ("-Cdebuginfo=0", "-Cembed-bitcode=no", "-Ccodegen-units=1", "-Cprefer-dynamic")
"""How code is made. What cargo's `dev` profile would add is debug information; overflow checks and
debug assertions are on in both."""


class RustToolchain:
    """Raises InternalFault, saying what to install, when Rust, clippy or a C linker's files are
    missing."""

    rustc = f"{ROOT}/toolchain/bin/rustc"
    clippy = f"{ROOT}/toolchain/bin/clippy-driver"
    compile_binds = ("/usr",)
    environment: Mapping[str, str] = {
        "LD_LIBRARY_PATH": f"{ROOT}/toolchain/lib",
        "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1",
    }
    """Variables of the compilers: they find no libraries without /proc, and free memory only when
    they end."""
    code_flags = (f"--sysroot={ROOT}/toolchain", *_CODE)
    harness_extern = f"--extern={HARNESS_CRATE}={_LIBRARY}"
    harness_flags = (
        "-Zallow-features=custom_test_frameworks",
        "-Zcrate-attr=feature(custom_test_frameworks)",
        f"-Zcrate-attr=test_runner({HARNESS_CRATE}::run)",
        harness_extern,
    )
    """Make `--test` collect tests as always and hand them to our harness in place of libtest."""

    def __init__(self) -> None:
        rustc = shutil.which("rustc")
        if rustc is None:
            raise InternalFault(
                f"the Rust grader needs `rustc`, which is not on PATH: {_INSTALL}", retryable=False
            )
        self.sysroot = Path(_run_command([rustc, "--print", "sysroot"]))
        about = _run_command([rustc, "-vV"])
        self.version = about.split()[1]
        fields = dict(line.split(": ", 1) for line in about.splitlines() if ": " in line)
        self.host = fields.get("host", "unknown")
        """The target triple."""
        self.commit = fields.get("commit-hash", "unknown")
        for tool in ("bin/clippy-driver", f"lib/rustlib/{self.host}/bin/rust-lld"):
            if not (self.sysroot / tool).exists():
                name = Path(tool).name
                message = f"the Rust grader needs `{name}` beside rustc {self.version}: {_INSTALL}"
                raise InternalFault(message, retryable=False)
        library = [
            str(self.sysroot / "bin" / "rustc"),
            "--crate-type=rlib",
            f"--crate-name={HARNESS_CRATE}",
            "--edition=2021",
            "-Copt-level=2",
            *_CODE,
            str(HARNESS),
        ]
        self.harness = _build(self, HARNESS, f"lib{HARNESS_CRATE}.rlib", library)
        shared = ["cc", "-std=gnu2x", "-O2", "-fPIC", "-shared", str(SERVER_SOURCE), "-ldl"]
        self.server = _build(self, SERVER_SOURCE, Path(SERVER).name, shared)

    @cached_property
    def compile_mounts(self) -> dict[str, str]:
        """What a box that compiles sees: the toolchain, what makes it a server, and our harness."""
        return {
            str(self.sysroot): f"{ROOT}/toolchain",
            str(self.server): SERVER,
            str(self.harness): _LIBRARY,
        }

    @cached_property
    def run_binds(self) -> tuple[str, ...]:
        """What a box that only runs sees: shared libraries; no compiler and no shell."""
        tools = filter(None, map(shutil.which, ("prlimit", "setpriv")))
        return ("/usr/lib", "/usr/lib64", *tools)

    @cached_property
    def run_mounts(self) -> dict[str, str]:
        libraries = (self.sysroot / "lib" / "rustlib" / self.host / "lib").glob("libstd-*.so")
        return {str(path): f"{_STD}/{path.name}" for path in libraries}

    def build_crates(self, config: Crates) -> Prebuilt:
        """Return the crates that answers may use, built if need be. Raises InternalFault or Misuse
        when they cannot be."""
        bundled_cargo = self.sysroot / "bin" / "cargo"
        cargo = str(bundled_cargo) if bundled_cargo.exists() else shutil.which("cargo")
        if config.list and cargo is None:
            raise InternalFault(
                f"building crates for answers needs `cargo` on PATH: {_INSTALL}", retryable=False
            )
        return build(config, self.sysroot / "bin" / "rustc", Path(cargo or ""))

    @property
    def answer_flags(self) -> tuple[str, ...]:
        """What keeps answers within stable and safe Rust, on a nightly compiler too."""
        unstable = "-nightly" in self.version or "-dev" in self.version
        return ("-Funsafe-code", *(("-Zallow-features=",) if unstable else ()))

    @cached_property
    def link_flags(self) -> tuple[str, ...]:
        """Call the toolchain's own linker directly."""
        start = ("Scrt1.o", "crti.o", "crtbeginS.o")
        end = ("crtendS.o", "crtn.o")
        places = {name: _find_c_file(name) for name in (*start, *end)}
        folders = sorted({str(Path(place).parent) for place in places.values()})
        command = [_find_cc(), "-###", "-pie", "-x", "c", "/dev/null", "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        interpreter = re.search(r'"?-dynamic-linker"? "?([^\s"]+)', done.stderr)
        if not interpreter:
            raise InternalFault(
                "the Rust grader cannot link programs: cc names no dynamic linker", retryable=False
            )
        arguments = [
            *("--threads=1", "-pie", "-rpath", _STD, "-dynamic-linker", interpreter[1]),
            *(places[name] for name in start),
            *(f"-L{folder}" for folder in folders),
            *("-lgcc_s", "-lc"),
            *(places[name] for name in end),
        ]
        linker = f"{ROOT}/toolchain/lib/rustlib/{self.host}/bin/rust-lld"
        return (
            "-Cstrip=symbols",
            "-Clinker-flavor=ld.lld",
            f"-Clinker={linker}",
            *(f"-Clink-arg={argument}" for argument in arguments),
        )


def _run_command(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        message = f"{shlex.join(command)} failed: {(done.stderr or done.stdout).strip()[:500]}"
        raise InternalFault(f"the Rust grader cannot start: {message}", retryable=False)
    return done.stdout.strip()


def _find_cc() -> str:
    cc_path = shutil.which("cc")
    if cc_path:
        return cc_path
    raise InternalFault(
        "the Rust grader needs a C compiler's start files to link programs, and there is no `cc` on"
        " PATH (Debian, Ubuntu: apt-get install gcc libc6-dev)",
        retryable=False,
    )


def _find_c_file(name: str) -> str:
    place = _run_command([_find_cc(), f"-print-file-name={name}"])
    if "/" not in place:
        message = (
            f"the C compiler has no {name}: install libc6-dev (Debian, Ubuntu), or your system's C"
            " library headers"
        )
        raise InternalFault(f"the Rust grader cannot link programs: {message}", retryable=False)
    return str(Path(place).resolve())


def _build(toolchain: RustToolchain, source: Path, name: str, command: list[str]) -> Path:
    """Return what `command` makes of our `source` and the files beside it, kept in the cache under
    a hash of these."""
    texts = [path.read_bytes() for path in sorted(source.parent.glob(f"*{source.suffix}"))]
    sources = hashlib.sha256(b"".join([*texts, toolchain.commit.encode()])).hexdigest()[:16]
    target = get_cache_folder() / f"rust-{toolchain.version}-{sources}" / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as folder:
        built = Path(folder) / name
        environment = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
        done = subprocess.run(
            [*command, "-o", str(built)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=environment,
        )
        if done.returncode != 0:
            message = (
                f"{source.name} could not be built for Rust {toolchain.version}:"
                f" {done.stderr.strip()[-2000:]}"
            )
            raise InternalFault(f"the Rust grader cannot start: {message}", retryable=False)
        built.chmod(0o644)
        built.rename(target)
    return target
