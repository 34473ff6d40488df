"""The shipped configuration of the Rust grader together with the shipped example of a list of
crates."""

from __future__ import annotations

from pathlib import Path

import yaml

from gradus.resources import configs
from services.graders.rust.crates import Crates, Directory

_GRADERS = configs() / "graders"


def crates() -> Crates:
    return Crates.model_validate(_read("rust_crates")["crates"])


def crates_are_here() -> bool:
    """The example names a folder of sources that a test machine has (Debian's librust-*-dev) and
    others may lack."""
    source = crates().source
    return isinstance(source, Directory) and any(source.directory.glob("*/.cargo-checksum.json"))


def write_config(path: Path) -> Path:
    """The configuration to start a grader with, written to `path`; without crates where their
    sources are not."""
    listed = _read("rust_crates") if crates_are_here() else {}
    path.write_text(yaml.safe_dump({**_read("rust"), **listed}))
    return path


def _read(name: str) -> dict[str, object]:
    settings: dict[str, object] = yaml.safe_load((_GRADERS / f"{name}.yaml").read_text())
    return settings
