"""The revision of a grader: a hash of everything that can change its verdicts.

That is the import closure of its module, read from the sources and not from what happens to be
loaded: every file of its folder, and every module of its own package, of `services` and of `gradus`
that these import, inside functions too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

PACKAGES = ("services", "gradus")
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)"
    r"|import[ \t]+([^\n#]*))",
    re.MULTILINE,
)
"""Text that looks like an import and is none, in a docstring say, adds at most a file too many. No
syntax trees: `ast.parse` of Python 3.11 fails now and then when several threads use it."""
_NAME = re.compile(r"[\w.]+")


def compute_revision(module: str, *settings: str, root: Path | None = None) -> str:
    """12 hex digits over `collect_closure(module)` and `settings`: configuration, versions of
    toolchains, hashes of models."""
    digest = hashlib.sha256()
    for name, path in collect_closure(module, root).items():
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    digest.update("\0".join(settings).encode())
    return digest.hexdigest()[:12]


def collect_closure(module: str, root: Path | None = None) -> dict[str, Path]:
    """Return the files behind a grader's verdicts, by their paths below the folder that holds their
    package, sorted.

    `root`: the folder that holds the packages, in place of where they are installed.
    """
    own_package = module.partition(".")[0]
    above = {}
    for package in (own_package, *PACKAGES):
        above[package] = root or Path(import_module(package).__path__[0]).parent
    home = above[own_package].joinpath(*module.split(".")[:-1])
    folder_files = []
    for path in home.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            folder_files.append(path)
    files = {path.relative_to(above[own_package]) for path in folder_files}
    unread = [file for file in files if file.suffix == ".py"]
    while unread:
        file = unread.pop()
        source = (above[file.parts[0]] / file).read_text()
        for name in _iter_imports(source, file.parts[:-1]):
            new = set(_iter_module_files(name, above)) - files
            files |= new
            unread += new
    return {str(file): above[file.parts[0]] / file for file in sorted(files)}


def _iter_imports(source: str, package: tuple[str, ...]) -> Iterator[str]:
    """Absolute dotted names that are imported; what is imported *from* a module may be a module or
    not."""
    for match in _IMPORT.finditer(source):
        dots, module, names, plain_names = match.groups(default="")
        if plain_names:
            yield from _NAME.findall(plain_names)
            continue
        base = package[: len(package) - len(dots) + 1] if dots else []
        prefix = ".".join([*base, *filter(None, [module])])
        yield prefix
        yield from (f"{prefix}.{name}" for name in _NAME.findall(names))


def _iter_module_files(name: str, above: dict[str, Path]) -> Iterator[Path]:
    """Yield the files that importing `name` runs, those of the packages around it included; none
    for other packages."""
    parts = name.split(".")
    if parts[0] not in above:
        return
    for end in range(1, len(parts) + 1):
        place = Path(*parts[:end])
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if (above[parts[0]] / file).is_file():
                yield file
