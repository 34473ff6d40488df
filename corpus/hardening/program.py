"""Harder tests of programs: cases whose inputs are those of the task with changes, and whose
expected values the reference gives, in the boxes of the grader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corpus.drafts import Unusable
from corpus.hardening.engine import ProposedTest
from corpus.hardening.input_mutation import CallMutation, InputMutation, split_parts
from corpus.hardening.invariants import Invariants
from corpus.program_mutations import C_LIKE, ProgramMutations
from gradus.tasks.program import ProgramTask
from services.graders.program.checkers import read_value
from services.graders.program.grader import ProgramGrader

_INPUTS = 30
"""Inputs that are tried."""
_TRIES = 25
"""Changes that are drawn for each of them: most may break what known inputs have in common."""
_MAX_CHARS = 2000
"""Longest input or expected output of a proposed case: a person reads it."""

_Case = dict[str, Any]


class ProgramHook:
    """Hardening of program tasks; an `engine.Hook`."""

    def __init__(self, grader: ProgramGrader) -> None:
        self.mutations = ProgramMutations()
        self._grader = grader

    def propose(self, task: Mapping[str, Any], solution: str, seed: str) -> list[ProposedTest]:
        """Return a case for each input that the reference answers."""
        language = task.get("language", "python")
        if language not in {"python", "rust", *C_LIKE}:
            raise Unusable(f"solutions in {language} are not mutated")
        examples = [*task["cases"], *task.get("public_cases", ())]
        inputs = [*draw_calls(examples, solution, seed), *draw_inputs(examples, solution, seed)]
        if not inputs:
            raise Unusable("its inputs have nothing that may change")
        # A checker program need not take the empty output that stands for the unknown one.
        unjudged = _replace_cases({**task, "checker": "exact"}, inputs)
        judged = self._grader.judge_cases(unjudged, solution)
        tests = []
        for case, verdict in zip(inputs, judged, strict=False):
            complete = _complete(case, verdict.got)
            if verdict.word in ("", "wrong_answer") and complete is not None:
                tests.append(ProposedTest(json.dumps(complete), expected=complete))
        return tests

    def find_failures(
        self, task: Mapping[str, Any], code: str, tests: Sequence[ProposedTest]
    ) -> Iterator[ProposedTest]:
        """Yield tests up to the one at which the code meets a limit."""
        if not tests:
            return
        cases = [test.expected for test in tests]
        judged = self._grader.judge_cases(_replace_cases(task, cases), code)
        for test, verdict in zip(tests, judged, strict=False):
            if verdict.word:
                yield test

    def add_tests(self, task: Mapping[str, Any], tests: Sequence[ProposedTest]) -> dict[str, Any]:
        return {"cases": [*task["cases"], *(test.expected for test in tests)]}


def draw_calls(cases: Sequence[_Case], solution: str, seed: str) -> list[_Case]:
    """Return new calls of each function that known cases call with arguments."""
    by_function: dict[str, list[_Case]] = {}
    for case in cases:
        if case.get("call") and case["call"].get("arguments"):
            by_function.setdefault(case["call"]["function"], []).append(case)
    drawn = []
    for function, called in by_function.items():
        examples = [case["call"]["arguments"] for case in called]
        mutation = CallMutation(examples, solution, f"{seed}:{function}")
        invariants = Invariants(examples)
        tried = {json.dumps(arguments) for arguments in examples}
        for number in range(_INPUTS):
            case = called[number % len(called)]
            for _ in range(_TRIES):
                arguments = mutation.change(case["call"]["arguments"])
                text = json.dumps(arguments)
                if text not in tried and len(text) <= _MAX_CHARS and invariants.admit(arguments):
                    tried.add(text)
                    call = {"function": function, "arguments": arguments}
                    drawn.append({**case, "call": call, "equals": None})
                    break
    return drawn


def draw_inputs(cases: Sequence[_Case], solution: str, seed: str) -> list[_Case]:
    """Return known cases with changes on standard input."""
    runs = [case for case in cases if not case.get("call") and case.get("stdin", "").strip()]
    runs = [case for case in runs if len(case["stdin"]) <= _MAX_CHARS]
    if not runs:
        return []
    examples = [case["stdin"] for case in runs]
    mutation = InputMutation(examples, solution, seed)
    invariants = Invariants([split_parts(text) for text in examples])
    tried = set(examples)
    drawn = []
    for number in range(_INPUTS):
        case = runs[number % len(runs)]
        for _ in range(_TRIES):
            text = mutation.change(case["stdin"])
            if text not in tried and invariants.admit(split_parts(text)):
                tried.add(text)
                drawn.append({**case, "stdin": text, "stdout": ""})
                break
    return drawn


def _complete(case: _Case, got: str) -> _Case | None:
    """Return a case with what the reference gave; None where that is no value, nothing, or long."""
    if len(got) > _MAX_CHARS:
        return None
    if not case.get("call"):
        return {**case, "stdout": got} if got.strip() else None
    is_value, value = read_value(got.encode())
    return {**case, "equals": value} if is_value and value is not None else None


def _replace_cases(task: Mapping[str, Any], cases: Sequence[_Case]) -> ProgramTask:
    changes = {"cases": cases, "public_cases": (), "points": {}, "stop_at_failure": False}
    return ProgramTask.model_validate({**task, **changes})
