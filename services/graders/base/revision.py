"""The revision of a grader: a hash of everything that can change its verdicts.

That is the import closure of its module, read from the sources and not from what happens to be
loaded: every file of its folder, and every module of its own package, of `services` and of `gradus`
that these import, inside functions too.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("services", "gradus")


def revision(module: str, *settings: str, root: Path | None = None) -> str:
    """12 hex digits over `closure(module)` and `settings`: configuration, versions of toolchains,
    hashes of models."""
    digest = hashlib.sha256()
    for name, path in closure(module, root).items():
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    digest.update("\0".join(settings).encode())
    return digest.hexdigest()[:12]


def closure(module: str, root: Path | None = None) -> dict[str, Path]:
    """The files behind a grader's verdicts, by their paths below the folder that holds their
    package, sorted.

    `root`: the folder that holds the packages, in place of where they are installed.
    """
    own = module.partition(".")[0]
    tops = {
        package: root / package if root else _folder_of(package) for package in {own, *PACKAGES}
    }
    folder = tops[own].joinpath(*module.split(".")[1:-1])
    files = {
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    unread = [path for path in sorted(files) if path.suffix == ".py"]
    while unread:
        path = unread.pop()
        top = next(top for top in tops.values() if path.is_relative_to(top))
        package = [top.name, *path.relative_to(top).parts[:-1]]
        for name in _imports(path.read_bytes(), tuple(package)):
            found = set(_files_of(name, tops)) - files
            files |= found
            unread += found
    return dict(sorted((str(_below(path, tops)), path) for path in files))


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"no package {package!r}", name=package)
    return Path(next(iter(spec.submodule_search_locations)))


def _below(path: Path, tops: dict[str, Path]) -> Path:
    top = next(top for top in tops.values() if path.is_relative_to(top))
    return Path(top.name, path.relative_to(top))


@lru_cache(maxsize=512)
def _imports(source: bytes, package: tuple[str, ...]) -> tuple[str, ...]:
    """Absolute dotted names that are imported; what is imported *from* a module may be a module or
    not."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            names += (prefix, *(f"{prefix}.{alias.name}" for alias in node.names))
    return tuple(names)


def _files_of(name: str, tops: dict[str, Path]) -> Iterator[Path]:
    """The files that importing `name` runs, those of the packages around it included; none for
    other packages."""
    first, *rest = name.split(".")
    if first not in tops:
        return
    place = tops[first]
    for part in [None, *rest]:
        place = place / part if part else place
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file
