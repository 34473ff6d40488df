"""The OCaml harness by itself, under what answers may not use: handlers that the runtime runs
inside of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from services.graders.base.harness_report import parse_test_report
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.toolchain import LIBRARY, SEAL

SHEET = "false 1 0 0\n" + "".join(f"{number:012x}" for number in range(32))
DECOYS = """
let () = ignore (Gradus_harness.code_of_tests ())
let decoy number = Printf.sprintf "%012x" number, fun _ -> assert (Gradus_harness.same number < 0)
let () = Gradus_harness.pool (Array.init 32 decoy)
"""
SECRET = "5f" * 16
INTERRUPTS = """
let armed = ref false
let left = ref %d
let interrupt () = if !armed && !left > 0 then (decr left; raise Exit)
let allocated _ = interrupt (); None
let tracker = { Gc.Memprof.null_tracker with alloc_minor = allocated; alloc_major = allocated }
let _ = Gc.Memprof.start ~sampling_rate:1.0 ~callstack_size:0 tracker
"""
"""Raises at that many allocations in a row, once armed."""


def run(grader: OcamlGrader, folder: Path, program: str, expected: int) -> tuple[int, int]:
    """Tests passed and counted of a program that the harness is linked to, without a box."""
    toolchain = grader.toolchain
    (folder / "program.ml").write_text(DECOYS + program)
    build = str(toolchain.build)
    names = ("shared", "value", "referee", "harness", "start")
    units = [LIBRARY, *(f"gradus_{name}.cmo" for name in names)]
    compile_ = [
        toolchain.ocamlc,
        "-w",
        "-a",
        "-I",
        build,
        "-dllib",
        SEAL,
        "-dllpath",
        build,
        "-o",
        "program",
    ]
    subprocess.run([*compile_, *units, "program.ml"], cwd=folder, check=True, timeout=60)
    with (folder / "report").open("wb") as report:
        subprocess.run(
            [toolchain.ocamlrun, "program"],
            cwd=folder,
            check=False,
            timeout=60,
            input=f"60000 false\n{SECRET}\n{SHEET}".encode(),
            stderr=subprocess.DEVNULL,
            pass_fds=(3,),
            preexec_fn=lambda: os.dup2(report.fileno(), 3),
        )
    tests = parse_test_report((folder / "report").read_bytes(), SECRET, expected).tests
    return tests.passed, tests.total


@pytest.fixture
def interrupts(ocaml_grader: OcamlGrader) -> str:
    if 500 <= ocaml_grader.toolchain.number < 503:
        pytest.skip("this OCaml has no Memprof")
    return INTERRUPTS


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5, 8, 13, 50, 1000, 100000])
def test_a_failing_step_cannot_be_silenced(
    ocaml_grader: OcamlGrader, interrupts: str, tmp_path: Path, number: int
) -> None:
    program = f"""{interrupts % number}
let () = Gradus_harness.guard (fun _ -> Gradus_harness.step 0 (fun _ -> armed := true; failwith "wrong"))
let () = Gradus_harness.guard (fun _ -> Gradus_harness.check_any 0 (fun _ -> ()))
let () = Gradus_harness.finish 1
"""  # noqa: E501
    passed, total = run(ocaml_grader, tmp_path, program, 1)
    assert passed < total


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5, 8, 13, 50, 1000, 100000])
def test_a_test_that_fails_when_it_runs_again_cannot_be_silenced(
    ocaml_grader: OcamlGrader, interrupts: str, tmp_path: Path, number: int
) -> None:
    program = f"""{interrupts % number}
let () = for i = 1 to 2 do
  Gradus_harness.guard (fun _ -> Gradus_harness.check_any 0 (fun _ -> if i = 2 then (armed := true; assert false)))
done
let () = Gradus_harness.finish 0
"""  # noqa: E501
    passed, total = run(ocaml_grader, tmp_path, program, 1)
    assert (passed, total) == (0, 1)


def test_what_nothing_interrupts_passes(ocaml_grader: OcamlGrader, tmp_path: Path) -> None:
    program = """
let () = for _ = 1 to 2 do Gradus_harness.step 0 (fun _ -> ()); Gradus_harness.check_any 0 (fun _ -> ()) done
let () = Gradus_harness.finish 1
"""  # noqa: E501
    assert run(ocaml_grader, tmp_path, program, 1) == (1, 1)


def test_a_step_that_never_ran_has_not_passed(ocaml_grader: OcamlGrader, tmp_path: Path) -> None:
    program = """
let () = Gradus_harness.check_any 0 (fun _ -> ())
let () = Gradus_harness.finish 1
"""
    assert run(ocaml_grader, tmp_path, program, 1) == (1, 2)
