"""Which OCaml the grader uses: the first on PATH, with the tools and packages that belong to it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from gradus.errors import InternalFault
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.toolchain import HARNESS_UNITS, SHARED_UNITS, OcamlToolchain


def put_first_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def tool(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


def test_packages_of_another_ocaml_are_not_used(
    ocaml_grader: OcamlGrader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("ocamlc")
    assert compiler
    (tmp_path / "ocamlc").symlink_to(compiler)
    tool(tmp_path / "ocamlfind", 'test "$1" = printconf && echo /usr/local/lib/another-ocaml')
    put_first_on_path(monkeypatch, tmp_path)
    toolchain = OcamlToolchain()
    assert toolchain.build == ocaml_grader.toolchain.build
    assert toolchain.packages(("ounit2",)).archives == ()
    with pytest.raises(
        InternalFault, match=r"needs OCaml packages unix.*not of OCaml.*another-ocaml"
    ) as raised:
        toolchain.packages(("unix",))
    assert not raised.value.retryable


def test_an_ocaml_that_boxes_cannot_see_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path / "ocamlc", 'test "$1" = -version && echo 5.3.0 || echo /tmp/ocaml/lib/ocaml')
    tool(tmp_path / "ocamlrun")
    put_first_on_path(monkeypatch, tmp_path)
    with pytest.raises(InternalFault, match="boxes have a /tmp of their own"):
        OcamlToolchain()


def test_the_version_is_in_the_name_of_the_build_and_in_every_result(
    ocaml_grader: OcamlGrader,
) -> None:
    toolchain = ocaml_grader.toolchain
    assert toolchain.build.name.startswith(f"ocaml-{toolchain.version}-")
    assert ocaml_grader.info().toolchain == f"ocaml {toolchain.version}"
    major, minor = divmod(toolchain.number, 100)
    assert toolchain.version.startswith(f"{major}.{minor:02}.") or toolchain.version.startswith(
        f"{major}.{minor}."
    )


@pytest.mark.parametrize("unit", [*HARNESS_UNITS, "confine", "runner"])
def test_a_unit_of_the_harness_names_no_module_of_the_library_that_answers_see(
    ocaml_grader: OcamlGrader, unit: str
) -> None:
    compiled = (ocaml_grader.toolchain.build / f"{unit}.cmo").read_bytes()
    # of `Domain` and `Effect` there is one in a program of OCaml 5
    names = rb"(Stdlib__(?!Domain|Effect)|Camlinternal)\w"
    seen = re.search(rb"(?<!Gradus_)(?<!Gradus_tests_)" + names, compiled)
    assert (seen is None) == (unit not in SHARED_UNITS)
