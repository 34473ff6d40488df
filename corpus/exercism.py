"""Tasks from a checkout of an Exercism track, OCaml or Rust, as the track lays it out. Runs nothing
and writes nothing.

Reads `exercises/*/*/.meta/config.json`, what that names, `.docs/`, and `dune` or `Cargo.toml`. A
checkout is not trusted: names that lead out of it, by `..` or by links, are refused, and so is what
is not an ordinary file.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.drafts import Draft, Unusable
from corpus.rust_text import signature
from gradus.contract import GraderName
from gradus.errors import Misuse
from gradus.tasks.base import MAX_TEXT_CHARS
from services.graders.rust.lexer import Kind, code

SOURCES = {"ocaml": "https://github.com/exercism/ocaml", "rust": "https://github.com/exercism/rust"}
_DOCS = ("introduction.md", "introduction.append.md", "instructions.md", "instructions.append.md")
_IN_PRELUDE = frozenset({"Vec", "String", "Option", "Result", "Box"})
_DUNE_WORDS = re.compile(r"\((?:libraries|pps)\s+([^()]*)\)")


def exercism_drafts(root: Path, language: GraderName) -> Iterator[Draft]:
    """One draft per exercise, by slug. Raises Misuse when the folder holds no exercises or no such
    language has any."""
    if language not in SOURCES:
        raise Misuse(
            f"there are no Exercism tasks for the grader {language!r}; there are for ocaml and rust"
        )
    folders = sorted(path.parent.parent for path in root.glob("exercises/*/*/.meta/config.json"))
    if not folders:
        raise Misuse(
            f"{root}: holds no exercises/*/*/.meta/config.json; give the root of a track's checkout"
        )
    track = _Track.read(root, language)
    for folder in sorted(folders, key=lambda path: (path.name, path.parent.name)):
        yield track.draft(folder)


@dataclass(frozen=True, slots=True)
class _Track:
    root: Path
    language: GraderName
    files: Mapping[str, Any]
    """Patterns of file names for exercises that name none of their own."""
    about: Mapping[str, Mapping[str, Any]]
    """Slug -> what the track says of the exercise."""
    licence: str | None

    @classmethod
    def read(cls, root: Path, language: GraderName) -> _Track:
        """Raises Misuse when the track's own configuration is there and cannot be read."""
        try:
            config = _json(root, root / "config.json") if (root / "config.json").exists() else {}
            exercises = config.get("exercises")
            kinds = exercises.values() if isinstance(exercises, dict) else ()
            about = {
                one["slug"]: one
                for kind in kinds
                for one in _records(kind)
                if isinstance(one.get("slug"), str)
            }
            licence = _licence(root)
        except Unusable as problem:
            raise Misuse(str(problem)) from None
        said = config.get("language")
        if isinstance(said, str) and said.lower() != language:
            raise Misuse(f"{root}: is the track of {said}, not of {language}")
        files = config.get("files")
        return cls(root, language, files if isinstance(files, dict) else {}, about, licence)

    def draft(self, folder: Path) -> Draft:
        name = f"exercism-{self.language}-{folder.name}"
        try:
            exercise = _Exercise(
                self.root, folder, _json(self.root, folder / ".meta" / "config.json"), self.files
            )
            fields = _FIELDS[self.language](exercise)
            return Draft(str(folder), name, {"id": name, **fields, **self._describing(exercise)})
        except Unusable as problem:
            return Draft(str(folder), name, problem=str(problem))

    def _describing(self, exercise: _Exercise) -> dict[str, Any]:
        about = self.about.get(exercise.folder.name, {})
        found = {
            "title": about.get("name"),
            "difficulty": about.get("difficulty"),
            "topics": about.get("topics"),
            "tags": ["deprecated"] if about.get("status") == "deprecated" else None,
            "group": f"exercism/{exercise.folder.name}",
            "source": (
                f"{SOURCES[self.language]} {exercise.folder.relative_to(self.root).as_posix()}"
            ),
            "licence": self.licence,
            "notes": exercise.attribution,
        }
        return {name: value for name, value in found.items() if value}


# ---------------------------------------------------------------------- one exercise


@dataclass(frozen=True, slots=True)
class _Exercise:
    root: Path
    folder: Path
    config: Mapping[str, Any]
    patterns: Mapping[str, Any]

    def paths(self, kind: str) -> list[str]:
        """The files that the exercise names as its `solution`, `test`, `example`, `exemplar` or
        `editor`."""
        files = self.config.get("files")
        named = files.get(kind) if isinstance(files, dict) else None
        if named is None:
            slug = self.folder.name
            parts = {
                "%{snake_slug}": slug.replace("-", "_"),
                "%{kebab_slug}": slug,
                "%{slug}": slug,
            }
            named = _texts(self.patterns.get(kind))
            for part, value in parts.items():
                named = [pattern.replace(part, value) for pattern in named]
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise Unusable(f".meta/config.json: files.{kind}: is no list of names")
        return named

    def one(self, kind: str, suffix: str) -> str:
        """The one file of that kind and ending. Raises Unusable when there are none or several."""
        names = [name for name in self.paths(kind) if name.endswith(suffix)]
        if len(names) != 1:
            raise Unusable(
                f".meta/config.json: files.{kind}: names {len(names)} files in {suffix}, not one"
            )
        return names[0]

    def read(self, name: str) -> str:
        return _text(self.root, self.folder / name)

    def optional(self, name: str) -> str | None:
        return self.read(name) if (self.folder / name).exists() else None

    @property
    def reference(self) -> str:
        files = self.config.get("files")
        kind = "exemplar" if isinstance(files, dict) and "exemplar" in files else "example"
        suffix = ".ml" if any(name.endswith(".ml") for name in self.paths(kind)) else ".rs"
        return self.read(self.one(kind, suffix))

    @property
    def description(self) -> str:
        found = [text.strip() for name in _DOCS if (text := self.optional(f".docs/{name}"))]
        if not found:
            raise Unusable(".docs: holds neither an introduction nor instructions")
        return "\n\n".join(found)

    @property
    def attribution(self) -> str:
        named = {
            "authors": ", ".join(_texts(self.config.get("authors"))),
            "inspired by": self.config.get("source"),
            "at": self.config.get("source_url"),
        }
        return "; ".join(
            f"{what}: {text}" for what, text in named.items() if isinstance(text, str) and text
        )


def _ocaml(exercise: _Exercise) -> dict[str, Any]:
    answer = exercise.one("solution", ".ml")
    test = exercise.one("test", ".ml")
    interface = exercise.optional(answer + "i")
    stub = exercise.read(answer)
    given = {answer, answer + "i", test}
    others = sorted(
        path.name for path in exercise.folder.glob("*.ml*") if path.suffix in (".ml", ".mli")
    )
    module = Path(answer).stem
    asked = f"Write the OCaml module `{module[:1].upper()}{module[1:]}`, the file `{answer}`."
    if interface:
        asked += f" Its interface is:\n\n{_block('ocaml', interface)}"
    code = {
        "tests": exercise.read(test),
        "solution": exercise.reference,
        "stub": stub,
        **({"signature": interface} if interface else {}),
    }
    listed = dict.fromkeys(
        word
        for found in _DUNE_WORDS.finditer(exercise.optional("dune") or "")
        for word in found[1].split()
    )
    # Every exercise of the track lists `base`: where no file names it, the task is judged the warm
    # way, without it.
    uses_base = re.search(r"\bBase\b", "\n".join(code.values()))
    return {
        "prompt": (
            f"{exercise.description}\n\n{asked}\n\nThe file starts as:\n\n{_block('ocaml', stub)}"
        ),
        **code,
        "module": module,
        "packages": [name for name in listed if name != "base" or uses_base],
        "files": {name: exercise.read(name) for name in others if name not in given},
    }


def _rust(exercise: _Exercise) -> dict[str, Any]:
    answer = exercise.one("solution", ".rs")
    if answer != "src/lib.rs":
        raise Unusable(
            f".meta/config.json: files.solution: is {answer}; only libraries, src/lib.rs, can be"
            " tested"
        )
    manifest = _toml(exercise, "Cargo.toml")
    package = manifest.get("package")
    if not isinstance(package, dict) or not isinstance(package.get("name"), str):
        raise Unusable("Cargo.toml: has no package.name")
    example = (
        _toml(exercise, ".meta/Cargo-example.toml")
        if exercise.optional(".meta/Cargo-example.toml")
        else {}
    )
    stub = exercise.read(answer)
    crate = package["name"].replace("-", "_")
    tests, solution = exercise.read(exercise.one("test", ".rs")), exercise.reference
    declared = _declared(stub, solution, tests)
    asked = (
        f"Write the Rust library crate `{crate}`. `src/lib.rs` starts as:\n\n{_block('rust', stub)}"
    )
    return {
        "prompt": f"{exercise.description}\n\n{asked}",
        "tests": tests,
        "solution": solution,
        "stub": stub,
        **({"signature": declared} if declared else {}),
        "crate": crate,
        "edition": str(package.get("edition", "2015")),
        "dependencies": (
            _crates(manifest) + [name for name in _crates(example) if name not in _crates(manifest)]
        ),
    }


def _declared(stub: str, solution: str, tests: str) -> str | None:
    """A signature, where tests use functions only, stub and reference agree on them, and their
    types need no import."""
    declared = signature(stub, tests)
    if declared is None or declared != signature(solution, tests):
        return None
    named = {
        token.text
        for token in code(declared)
        if token.kind is Kind.NAME and token.text[0].isupper()
    }
    return declared if named <= _IN_PRELUDE and "<" not in declared.partition("(")[0] else None


def _crates(manifest: Mapping[str, Any]) -> list[str]:
    tables = (manifest.get("dependencies"), manifest.get("dev-dependencies"))
    return list(
        dict.fromkeys(name for table in tables if isinstance(table, dict) for name in table)
    )


_FIELDS: Mapping[GraderName, Callable[[_Exercise], dict[str, Any]]] = {
    "ocaml": _ocaml,
    "rust": _rust,
}


def _block(tag: str, code: str) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", code)), 3)
    return f"{fence}{tag}\n{code.strip()}\n{fence}"


# ------------------------------------------------------------------------------------------- files


def _text(root: Path, path: Path) -> str:
    """The text of a file below `root`. Raises Unusable for what leads out, is no file, too large or
    not UTF-8."""
    shown = _shown(root, path)
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root.resolve()):
            raise Unusable(f"{shown}: leads out of {root}")
        if not real.is_file():
            raise Unusable(f"{shown}: is no file")
        if real.stat().st_size > 4 * MAX_TEXT_CHARS:
            raise Unusable(f"{shown}: is longer than {MAX_TEXT_CHARS} characters")
        return real.read_bytes().decode("utf-8-sig")
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            line = error.object[: error.start].count(b"\n") + 1
            raise Unusable(f"{shown}:{line}: is not UTF-8 text") from None
        reason = getattr(error, "strerror", None) or error
        raise Unusable(f"{shown}: cannot be read: {reason}") from None


def _shown(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _json(root: Path, path: Path) -> dict[str, Any]:
    text, shown = _text(root, path), _shown(root, path)
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{shown}: is not JSON: {error}") from None
    if not isinstance(read, dict):
        raise Unusable(f"{shown}: is {type(read).__name__}, not an object")
    return read


def _toml(exercise: _Exercise, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(exercise.read(name))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unusable(f"{name}: is not TOML: {error}") from None


def _licence(root: Path) -> str | None:
    """The name of the licence and its copyright line, from the file at the root."""
    path = next(
        (root / name for name in ("LICENSE", "LICENCE", "LICENSE.md") if (root / name).exists()),
        None,
    )
    if path is None:
        return None
    lines = [line.strip() for line in _text(root, path).splitlines() if line.strip()]
    copyright_ = next((line for line in lines if line.lower().startswith("copyright")), None)
    return "; ".join(line for line in (lines[0] if lines else None, copyright_) if line) or None


def _records(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
