"""The warm way must come to the verdicts of the stock compiler: on our tasks, their mutants, and
the public corpora."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gradus.errors import InternalFault
from gradus.resources import configs
from gradus.tasks.ocaml import OcamlTask
from services.graders.ocaml.attempt import GradingAttempt
from services.graders.ocaml.cold_path import ColdPath
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.warm_path import WarmPath
from tests.attack.fuzz_ocaml import sources
from tests.e2e import ocaml_corpora


def seen(way: WarmPath | ColdPath, attempt: GradingAttempt) -> tuple[object, ...]:
    """What both ways must agree on; the words of diagnostics may differ."""
    try:
        facts = way.facts(attempt)
    except InternalFault as fault:  # the task's doing
        return (fault.message,)
    return (
        facts.stage,
        round(facts.typed_share, 6),
        facts.compiled,
        facts.tests,
        sorted(facts.flags),
    )


def differences(grader: OcamlGrader, pairs: Iterator[tuple[str, OcamlTask, str]]) -> list[str]:
    found = []
    for name, task, code in pairs:
        warm, cold = (
            seen(way, GradingAttempt(task, code, 0)) for way in (grader.warm, grader.cold)
        )
        if warm != cold:
            found.append(f"{name}: warm {warm}, cold {cold}")
    return found


def task_of(row: dict[str, Any], signature: str | None) -> OcamlTask:
    return OcamlTask.model_validate(
        {"tests": row["tests"], "signature": signature, "limits": row.get("limits", {})}
    )


PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 6))]
"""Each part has a sixth of the answers, and of every kind of answer."""


def our_answers(part: int) -> Iterator[tuple[str, OcamlTask, str]]:
    rows = [
        json.loads(line) for line in (configs() / "tasks" / "ocaml.jsonl").read_text().splitlines()
    ]
    for row in random.Random(3).sample(rows, 39)[part::6]:
        for declared in (True, False):
            task = task_of(row, row["signature"] if declared else None)
            for which in ("solution", "stub"):
                yield f"{row['id']} {which} {'' if declared else 'un'}declared", task, row[which]


def mutants() -> Iterator[tuple[str, OcamlTask, str]]:
    for number, (row, source) in enumerate(sources(seed=11, number=30)):
        task = task_of(row, row["signature"])
        if source.strip() and len(source) < 4000:
            yield f"mutant {number} of {row['id']}", task, source


def corpora() -> Iterator[tuple[str, OcamlTask, str]]:
    for record in ocaml_corpora.records():
        for which in ("solution", "stub"):
            task = ocaml_corpora.submission(record, which).task
            if set(task.packages) <= {"ounit2"} and not task.files:
                yield f"{record['id']} {which}", task, record[which]


TOUCHING = {
    "a temporary file": 'Filename.temp_file "a" "b"',
    "an open temporary file": 'Filename.open_temp_file "a" "b"',
    "a file that is written": 'let c = open_out "x" in output_string c "y"; close_out c',
    "a file that is read": 'input_line (open_in "/dev/null")',
    "its own program": "open_in_bin Sys.executable_name",
    "where it is": "Sys.getcwd ()",
    "another place": 'Sys.chdir "/"',
    "a folder": 'Sys.readdir "/tmp"',
    "a new folder": 'Sys.mkdir "/tmp/a" 0o700',
    "a file that is gone": 'Sys.remove "/tmp/a"',
    "a new name": 'Sys.rename "/tmp/a" "/tmp/b"',
    "whether a file exists": 'if not (Sys.file_exists "/dev/null") then failwith "no"',
    "whether a file does not exist": 'if Sys.file_exists "/dev/null" then failwith "yes"',
    "a command": 'if Sys.command "true" <> 0 then failwith "no"',
    "the environment": 'Sys.getenv "PATH"',
    "a variable that is not there": 'Sys.getenv "HOME"',
    "its arguments": 'if Array.length Sys.argv <> 1 then failwith "some"',
    "a line of input": "read_line ()",
    "the length of its input": "in_channel_length stdin",
    "a little output": 'print_endline "y"; prerr_endline "y"',
    "a megabyte of output": "print_string (String.make 1_000_000 'y'); flush stdout",
    "output after the end": "close_out stdout; print_newline ()",
    "a signal": "Sys.set_signal Sys.sigint Sys.Signal_ignore",
    "the clock": "Sys.time ()",
    "chance": "Random.self_init (); Random.bits ()",
    "a backtrace": (
        "Printexc.(record_backtrace true; try raise Exit with _ -> print_string (get_backtrace ()))"
    ),
    "what is done at the end": "at_exit (fun () -> failwith {|x|})",
    "the end": "exit 0",
    "all memory": "Array.init 100 (fun _ -> Bytes.create 100_000_000)",
    "all of the stack": "let rec deep n = 1 + deep (n + 1) in deep 0",
}


WHERE = {
    "at every call": "let f x = ignore ({}); x + 1",
    "at every call, caught": "let f x = (try ignore ({}) with _ -> ()); x + 1",
    "at the start": "let () = ignore ({})\nlet f x = x + 1",
}


def touching(part: int) -> Iterator[tuple[str, OcamlTask, str]]:
    task = OcamlTask(
        tests="let () = assert (f 1 = 2); assert (f 5 = 6)", signature="val f : int -> int"
    )
    for number, (what, expression) in enumerate(TOUCHING.items()):
        where = [*WHERE][(number + part) % len(WHERE)]
        yield f"{what}, {where}", task, WHERE[where].format(expression)


@pytest.mark.parametrize("part", PARTS)
def test_on_answers_that_touch_more_than_values_both_ways_agree(
    ocaml_grader: OcamlGrader, part: int
) -> None:
    assert differences(ocaml_grader, touching(part)) == []


@pytest.mark.parametrize("part", PARTS)
def test_on_our_tasks_both_ways_agree(ocaml_grader: OcamlGrader, part: int) -> None:
    assert differences(ocaml_grader, our_answers(part)) == []


def test_on_mutants_both_ways_agree(ocaml_grader: OcamlGrader) -> None:
    assert differences(ocaml_grader, mutants()) == []


@pytest.mark.slow
@pytest.mark.skipif(
    not ocaml_corpora.DATA.is_dir(), reason="the corpora are not beside this checkout"
)
def test_on_the_public_corpora_both_ways_agree(ocaml_grader: OcamlGrader) -> None:
    assert differences(ocaml_grader, corpora()) == []
