"""Evaluations made up for the tests of their pages: one that looks like a real one, one hostile.
Samples nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from report_runs import (
    MACHINE,
    RIGHT,
    STUCK,
    UNTYPED,
    WRONG,
    XSS,
    Result,
    lines,
    record_of,
    verdict,
)

from gradus.contract import Diagnostic, Faulted, Stage, build_faulted
from gradus.descriptions import describe_offline
from gradus.errors import FaultKind
from trainer.evaluate.breakdowns import Turns, compute_turns
from trainer.evaluate.plan import Mode
from trainer.evaluate.results import Evaluation, compute_measurement
from trainer.rewards.judge import Record

OCAML = describe_offline("ocaml")
KINDS = ("lists", "trees", "strings")
DIFFICULTIES = ("easy", "medium", "hard", "easy")
BODIES = ("x + 1", "List.map succ x", "let r = ref x in !r")
_MODES: tuple[tuple[Mode, int], ...] = (("sampled", 4), ("greedy", 1))


def rich_evaluation(name: str, level: float) -> tuple[Evaluation, list[Record]]:
    """What `gradus eval` finds: two ways of sampling, kinds and difficulties, turns, all that can
    go wrong."""
    draw = random.Random(name)
    records = [
        _drawn(draw, mode, n, sample, level)
        for mode, samples in _MODES
        for n in range(40)
        for sample in range(samples)
    ]
    records = [_with_names(record) for record in records]
    return build_evaluation(name, records, turns=3), records


def hostile_evaluation() -> tuple[Evaluation, list[Record]]:
    """Every text that an evaluation can hold is an attack."""
    remark = Diagnostic(stage=Stage.TYPES, message=f"Unbound value {XSS.replace(' ', '/')}")
    given: dict[str, Any] = {
        "components": {XSS: 0.25},
        "flags": (XSS,),
        "rubric": XSS,
        "toolchain": XSS,
    }
    bad = verdict(0.25, diagnostics=(remark,), grader="ocaml@" + XSS, **given)
    stuck: Faulted = build_faulted("x", FaultKind.INTERNAL, XSS, retryable=False)
    text = XSS + "\u202e\x1b[31m\ufeff" + "x" * 300_000
    records: list[Record] = []
    for task, result in ((XSS, bad), ("b", bad), ("stuck", stuck)):
        made = record_of(
            result, mode="greedy", task_id=task, kind=XSS, sample=0, prompt=XSS, completion=text
        )
        records.append({**made, "difficulty": XSS + task, "finish_reason": XSS})
    lost = {
        **records[-1],
        "prompt_id": "lost",
        "status": "generation_error",
        "fault": None,
        "completion": "",
    }
    records.append({**lost, "error": {"kind": XSS, "message": XSS}})
    return build_evaluation(XSS, records, model=XSS, tasks=XSS), records


def stored(folder: Path, found: Evaluation, records: list[Record]) -> Path:
    """The folder, with what `gradus eval` leaves in it for readers."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(found.model_dump_json(by_alias=True))
    lines(folder / "completions.jsonl", records)
    return folder


def build_evaluation(
    name: str, records: list[Record], *, turns: int = 1, **changed: Any
) -> Evaluation:
    """The figures of records of both ways of sampling, or of one; `turns` has them repaired until
    then."""
    measurements = []
    for mode, samples in _MODES:
        of_mode = [record for record in records if record["mode"] == mode]
        if of_mode:
            measurement = compute_measurement(
                of_mode,
                mode=mode,
                temperature=float(mode == "sampled"),
                samples=samples,
                turns=_repaired(of_mode, turns),
                description=OCAML,
            )
            measurements.append(measurement)
    given: dict[str, Any] = {
        "name": name,
        "created": "2026-01-01T00:00:00+00:00",
        "model": "Qwen/Qwen2.5-Coder-1.5B-Instruct",
        "tasks": "ocaml.jsonl",
        "tasks_sha256": "ab" * 32,
        "grader": "ocaml",
        "graders": tuple(sorted({record["grader"] for record in records if record["grader"]})),
        "rubrics": tuple(sorted({record["rubric"] for record in records if record["rubric"]})),
        "toolchains": ("ocaml 4.14.1",),
        "seed": 7,
        "max_new_tokens": 512,
        "duration_s": 95.0,
        "machine": MACHINE,
        "measurements": tuple(measurements),
        "served": True,
        "asked_as": "chat",
        "top_p": 1.0,
    }
    given |= changed
    return Evaluation(grader_description=describe_offline(given["grader"]), **given)


def _with_names(record: Record) -> Record:
    """What does not type has a name that does not exist, and every task a stub."""
    record = {**record, "stub": 'let f x = failwith "todo"'}
    if record["stage"] != "types":
        return record
    name = ("lenght", "List.summ", "String.reverse")[
        len(record["prompt_id"]) * record["sample"] % 3
    ]
    remark = Diagnostic(stage=Stage.TYPES, line=1, message=f"Unbound value {name}")
    return {**record, "diagnostics": [remark.model_dump(mode="json")]}


def _repaired(firsts: list[Record], turns: int) -> Turns | None:
    """Every second answer that did not pass turns green when it is asked for again, the others
    never."""
    if turns == 1:
        return None
    later = []
    failed = [record for record in firsts if record["passed"] is False]
    for n, record in enumerate(failed):
        green = {"passed": True, "completion": "let f x = x"} if n % 2 else {}
        again = {**record, **green, "turn": 2}
        later += [again] if green else [again, {**again, "turn": 3}]
    return compute_turns(firsts, later, turns)


def _drawn(draw: random.Random, mode: Mode, n: int, sample: int, level: float) -> Record:
    result: Result = RIGHT if draw.random() < level else draw.choice((WRONG, WRONG, UNTYPED))
    made = record_of(
        STUCK if draw.random() < 0.01 else result,
        mode=mode,
        task_id=f"task-{n}",
        kind=KINDS[n % 3],
        sample=sample,
        prompt=f"(* task {n} *)",
        completion=f"let f x = {draw.choice(BODIES)}",
    )
    record: Record = {
        **made,
        "difficulty": DIFFICULTIES[n % 4],
        "attempts": 1,
        "written_at": 100 + draw.random() * 50,
    }
    if draw.random() < 0.02:
        lost = {
            "status": "generation_error",
            "fault": None,
            "reward": None,
            "passed": None,
            "completion": "",
        }
        return {**record, **lost, "error": {"kind": "timeout", "message": "no answer within 300 s"}}
    tokens = draw.randint(5, 300)
    latency_s = draw.uniform(0.2, 6)
    reason = "length" if draw.random() < 0.1 else "stop"
    return {
        **record,
        "prompt_tokens": 40,
        "completion_tokens": tokens,
        "latency_s": latency_s,
        "finish_reason": reason,
    }
