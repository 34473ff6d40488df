"""The OCaml that is installed here, and the two things built with it: the front and the harness.

Builds are kept in the cache folder under a name that holds the version of OCaml and the hash of the
sources, so a changed source or compiler is a new build and several workers may share one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gradus.errors import InternalFault
from gradus.resources import get_cache_folder

HERE = Path(__file__).parent
STUBS = "stubs.c"
PAGES = "pages.c"
"""Part of the two servers alone."""
SEGMENTS = "-no-pie -Wl,-z,max-page-size=0x200000 -Wl,-z,separate-code"
"""How the servers are linked: each segment begins at a huge page."""
COMPILER = "compiler.ml"
"""The one source of the front that depends on the version of OCaml. The C preprocessor reads it and
the harness."""
FRONT_UNITS = (
    *(
        "gradus_value",
        "gradus_referee",
        "private",
        "wire",
        "diagnostic",
        "forbidden",
        "typing",
        "control",
        "data",
        "split",
        "failures",
        "tests",
        "lint",
    ),
    *("request", "confine", "emit", "cold", "warm", "main"),
)
MODULES = ("gradus_modules", "gradus_tests_modules")
"""The modules of the library of answers and of the library of tests: the same source, which is
written here."""
HARNESS_UNITS = (
    *MODULES,
    "gradus_unify",
    "gradus_shared",
    "gradus_value",
    "gradus_referee",
    "gradus_harness",
    "oUnit2",
    "gradus_start",
    "gradus_load",
)
SHARED_UNITS = ("gradus_modules", "gradus_shared")
"""Units of the harness that see the library of answers."""
LIBRARY = "gradus_stdlib.cma"
"""The standard library of the harness (front/private.ml)."""
TESTS_LIBRARY = "gradus_tests_stdlib.cma"
"""The standard library of tests."""
_STATES = (
    "Stdlib.Format.std_formatter",
    "Stdlib.Format.err_formatter",
    "Stdlib.Format.str_formatter",
    "Stdlib.Format.stdbuf",
    "Stdlib.Scanf.Scanning.stdin",
)
"""Values of the library that change, which tests and answers share."""
EXECUTABLES = ("front", "runner")
SEAL = "dllgradus.so"
"""What programs of their own load: closes the file system to them before the answer runs."""
_HIDDEN = frozenset({"Obj", "Marshal", "Callback", "Weak", "Ephemeron", "Parsing"})
_RESERVED_MB = 258
"""Measured: 267.6 MB of address space where 4.13 has 8.1; 256 MB are set aside for the minor heaps
of 128 domains."""
MOUNT = "/opt/gradus-ocaml"
"""Where boxes see the build."""

_INSTALL = (
    "Debian, Ubuntu: apt-get install ocaml-nox ocaml-findlib ocaml-compiler-libs; elsewhere: opam"
    " install ocamlfind"
)


@dataclass(frozen=True, slots=True)
class Packages:
    """What `ocamlc` must be told for a set of findlib packages, dependencies included."""

    includes: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    ppx: tuple[str, ...] = ()


class OcamlToolchain:
    """Raises InternalFault, saying what to install, when OCaml is missing or the front cannot be
    built."""

    def __init__(self) -> None:
        self.ocamlc = _find_tool("ocamlc.opt", "ocamlc")
        self.ocamlrun = _find_tool("ocamlrun")
        self.version = _read_output([self.ocamlc, "-version"])
        self.library = _read_output([self.ocamlc, "-where"])
        if self.library.startswith("/tmp/"):
            message = (
                f"OCaml is in {self.library}, and boxes have a /tmp of their own: install it"
                " elsewhere"
            )
            raise InternalFault(message, retryable=False)
        major, minor = self.version.split(".")[:2]
        self.number = 100 * int(major) + int(minor)
        """413 for OCaml 4.13.1, 503 for 5.3.0."""
        self.hidden = _HIDDEN | ({"Domain"} if self.number >= 500 else set())
        """Modules of the standard library that answers may not name (front/forbidden.ml)."""
        self.reserved_mb = _RESERVED_MB if self.number >= 500 else 0
        """Address space that every process has at its start and that holds no memory; limits do not
        mean it."""
        self.environment = {"OCAMLRUNPARAM": "l=1M"} if self.number >= 500 else {}
        """Variables of programs in boxes. OCaml 5 lets a stack grow to a gigabyte, so that one
        recursion without end would use up the CPU time of all tests, and a compiler's that of the
        whole answer: 8 MB, as before OCaml 5."""
        self.build = _build(self)

    @property
    def compile_binds(self) -> tuple[str, ...]:
        """What a box that compiles sees of this machine."""
        return (*self._prefixes, "/etc/findlib.conf", "/etc/ocamlfind.conf")

    @property
    def run_binds(self) -> tuple[str, ...]:
        """What a box that only runs sees: libraries, stubs and `ocamlrun`; no compiler and no
        shell."""
        prefixes = [path for path in self._prefixes if path != "/usr"]
        tools = filter(None, map(shutil.which, ("prlimit", "setpriv")))
        return ("/usr/lib", "/usr/lib64", *prefixes, self.ocamlrun, *tools)

    @property
    def _prefixes(self) -> tuple[str, ...]:
        roots = {str(Path(self.ocamlc).parent.parent), str(Path(self.library).parent.parent)}
        return (
            "/usr",
            *sorted(root for root in roots if not root.startswith("/usr") and root != "/"),
        )

    @lru_cache(maxsize=256)  # noqa: B019 - one toolchain lives as long as its worker
    def packages(self, names: tuple[str, ...]) -> Packages:
        """Resolve findlib packages. `ounit2` is left out: tests see the harness's own.

        Raises InternalFault naming a package that is not installed.
        """
        needed = [name for name in names if name not in ("ounit2", "oUnit")]
        if not needed:
            return Packages()
        ocamlfind = _find_tool("ocamlfind")
        if (library := _read_output([ocamlfind, "printconf", "stdlib"])) != self.library:
            message = (
                f"the task needs OCaml packages {', '.join(needed)}, and the ocamlfind on PATH is"
                f" not of OCaml {self.version}: it has the packages of {library}. Put the right one"
                " first on PATH"
            )
            raise InternalFault(message, retryable=False)
        includes = _query(ocamlfind, needed, "-format", "%d")
        archives = [line for line in _query(ocamlfind, needed, "-a-format") if line.strip()]
        ppx = []
        for part in _read_output([ocamlfind, "printppx", *needed]).split("-ppx"):
            if part.strip():
                ppx.append(part.strip())
        return Packages(
            tuple(dict.fromkeys(includes)), tuple(archives), tuple(part.strip('"') for part in ppx)
        )


def _query(ocamlfind: str, names: list[str], *form: str) -> list[str]:
    command = [ocamlfind, "query", "-recursive", "-predicates", "byte", *form, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise InternalFault(
            f"the task needs OCaml packages {', '.join(names)}, and this worker lacks one:"
            f" {done.stderr.strip()}. Install it (Debian: apt-get install lib<name>-ocaml-dev;"
            " elsewhere: opam install <name>)",
            retryable=False,
        )
    return done.stdout.split("\n")


def _find_tool(*names: str) -> str:
    """Return the first of these tools that is beside the first `ocamlc` on PATH, or else anywhere
    on PATH."""
    beside = str(Path(shutil.which("ocamlc") or "/usr/bin/ocamlc").parent)
    for folders in (beside, None):
        for name in names:
            if path := shutil.which(name, path=folders):
                return os.path.realpath(path)
    raise InternalFault(
        f"the OCaml grader needs `{names[0]}`, which is not on PATH. {_INSTALL}", retryable=False
    )


def _read_output(command: list[str]) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def _list_sources() -> list[Path]:
    units = [f"{unit}.ml" for unit in FRONT_UNITS if unit not in HARNESS_UNITS]
    front = [HERE / "front" / name for name in (STUBS, PAGES, COMPILER, *units)]
    written = [unit for unit in HARNESS_UNITS if unit not in MODULES]
    harness = [HERE / "harness" / f"{unit}.ml" for unit in written]
    return [*front, *harness, HERE / "runner" / "runner.ml"]


def compute_source_hash() -> str:
    """Hash over the OCaml sources and how they are built."""
    digest = hashlib.sha256()
    for path in (Path(__file__), *_list_sources()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _build(toolchain: OcamlToolchain) -> Path:
    target = get_cache_folder() / f"ocaml-{toolchain.version}-{compute_source_hash()}"
    if (target / "runner").exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as name:
        folder = Path(name) / "build"
        folder.mkdir(mode=0o755)
        for source in _list_sources():
            shutil.copy(source, folder)
        _compile(toolchain, folder)
        _make_view(toolchain, folder / "view")
        for path in folder.iterdir():
            path.chmod(0o755 if path.name in EXECUTABLES or path.is_dir() else 0o644)
        try:
            folder.rename(target)
        except OSError:  # another process may have built the same in the meantime
            if not (target / "runner").exists():
                raise
    return target


def _compile(toolchain: OcamlToolchain, folder: Path) -> None:
    front = [f"{unit}.ml" for unit in FRONT_UNITS]
    harness = [f"{unit}.ml" for unit in HARNESS_UNITS]
    linked = []
    for unit in HARNESS_UNITS:
        if unit not in ("gradus_start", "gradus_load"):
            linked.append(f"{unit}.cmo")
    preprocessed = [
        "-pp",
        f"gcc -E -undef -nostdinc -traditional-cpp -x c -DVERSION={toolchain.number}",
    ]
    # from 5.0 on these libraries have folders of their own
    flags = [
        "-w",
        "-a",
        *(part for name in ("unix", "str", "compiler-libs") for part in ("-I", f"+{name}")),
    ]
    native = _find_tool("ocamlopt.opt", "ocamlopt")
    # a child that maps no libraries has fewer pages to find; not every system has them to link
    static = Path(_read_output(["gcc", "-print-file-name=libc.a"])).is_absolute()
    servers = ["-ccopt", f"-static {SEGMENTS}" if static else SEGMENTS, STUBS, PAGES]
    libraries = [f"{name}.cmxa" for name in ("unix", "str", "ocamlcommon", "ocamlbytecomp")]
    # the runner's bytecode comes from the answer, so it brings the whole standard library and a
    # runtime of its own
    for unit in MODULES:
        (folder / f"{unit}.ml").write_text(_write_modules(Path(toolchain.library)))
    for name in (LIBRARY, TESTS_LIBRARY):
        shutil.copy(Path(toolchain.library) / "stdlib.cma", folder / name)
    private = [LIBRARY]
    for name in ("unix", "ocamlcommon", "ocamlbytecomp"):
        [archive] = Path(toolchain.library).rglob(f"{name}.cma")
        private.append(f"gradus_{name}.cma")
        shutil.copy(archive, folder / private[-1])
    of_tests = f"{MODULES[1]}.cmo"
    units = [f"{unit}.cmo" for unit in (*HARNESS_UNITS, "confine", "runner")]
    others = (*(f"{unit}.cmo" for unit in SHARED_UNITS), of_tests)
    own = [unit for unit in units if unit not in others]
    runner = [toolchain.ocamlc, *flags, "-custom", "-linkall", *private, TESTS_LIBRARY]
    commands = [
        [native, *flags, *preprocessed, "-c", COMPILER],
        [
            native,
            *flags,
            *libraries,
            "-ccopt",
            "-fPIC",
            *servers,
            f"{Path(COMPILER).stem}.cmx",
            *front,
            "-o",
            "front",
        ],
        [_find_tool("ocamlmklib"), "-o", "gradus", STUBS.replace(".c", ".o")],
        [toolchain.ocamlc, "-w", "-a", *preprocessed, "-c", *harness],
        [toolchain.ocamlc, *flags, "-c", "confine.ml", "runner.ml"],
        ["./front", "own", *private, *own],
        ["./front", "of_tests", TESTS_LIBRARY, of_tests],
        [*runner, *servers, *linked, "confine.cmo", "runner.cmo", "-o", "runner"],
    ]
    for command in commands:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode != 0:
            raise InternalFault(
                "the OCaml grader's own compiler front could not be built with OCaml"
                f" {toolchain.version}: {done.stderr.strip()[-2000:]}\nIt was run with OCaml 4.13"
                f" with ocamlopt, gcc and compiler-libs. {_INSTALL}",
                retryable=False,
            )


def _write_modules(library: Path) -> str:
    """Return a unit that has all modules of the standard library as values."""
    names = ["Stdlib", "CamlinternalFormat", "CamlinternalLazy", "CamlinternalMod"]
    for interface in sorted(library.glob("stdlib__*.cmi")):
        name = interface.stem.removeprefix("stdlib__")
        if name not in ("Domain", "Effect"):
            names.append(f"Stdlib.{name}")
    lines = []
    for number, name in enumerate(names):
        lines.append(f"module type T{number} = module type of {name}")
    modules = [f"Obj.repr (module {name} : T{number})" for number, name in enumerate(names)]
    lines.append(f"let all = [ {'; '.join(modules)} ]")
    lines.append(f"let states = [ {'; '.join(f'Obj.repr {state}' for state in _STATES)} ]")
    return "\n".join(lines)


def _make_view(toolchain: OcamlToolchain, view: Path) -> None:
    """The interfaces of the standard library that answers may name: nothing that forges values,
    nothing not linked."""
    view.mkdir(mode=0o755)
    hidden = {f"stdlib__{name}" for name in toolchain.hidden}
    for interface in Path(toolchain.library).glob("*.cmi"):
        name = interface.stem
        standard = name == "stdlib" or name.startswith(("stdlib__", "camlinternal"))
        if standard and name not in hidden:
            shutil.copy(interface, view)
            (view / interface.name).chmod(0o644)
