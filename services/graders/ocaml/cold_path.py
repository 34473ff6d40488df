"""The cold path: the stock compiler, in a fresh box for each step. For every task; the reference
for the warm path.

Three boxes: the tests do not exist in the first, nothing of the answer runs in the second, and the
third has neither compiler nor sources.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Mapping
from dataclasses import replace

from gradus.errors import InternalFault, SandboxFault
from services.graders.base.code import CodeFacts, add_test_run, find_exceeded_limit
from services.graders.base.harness_report import HarnessReport, parse_test_report
from services.graders.ocaml.attempt import (
    CONTROL,
    TOY,
    GradingAttempt,
    Sections,
    build_failure_facts,
    build_mismatch_facts,
    decode_sections,
    encode_sections,
    find_task_problem,
    is_warm_eligible,
    parse_facts,
    parse_section,
    refuse_task,
)
from services.graders.ocaml.config import OcamlConfig
from services.graders.ocaml.toolchain import (
    HARNESS_UNITS,
    LIBRARY,
    MOUNT,
    SEAL,
    TESTS_LIBRARY,
    OcamlToolchain,
)
from services.sandbox import Command, ExitReason, Outcome, Sandbox
from services.sandbox.cancellation import NeedsTime

_VIEW = f"{MOUNT}/view".encode()
_CACHED_TASKS = 512
_STALL_S = 3.0
"""Seconds in all that a run may be asleep, `unix` or not."""
_TIMER = 128 + signal.SIGPROF
_LOADING_THE_SEAL = ("-dllib", SEAL, "-dllpath", MOUNT)


class ColdPath:
    def __init__(self, sandbox: Sandbox, toolchain: OcamlToolchain, config: OcamlConfig) -> None:
        self._sandbox = sandbox
        self._toolchain = toolchain
        self._config = config
        self._problems: dict[bytes, str | None] = {}
        """Digest of a task -> why its tests judge no answer, the oldest first."""
        self._lock = threading.Lock()
        """Guards `_problems`."""

    def facts(self, attempt: GradingAttempt) -> CodeFacts:
        """Return what the boxes show of this answer. Raises Fault for what is not its doing."""
        if problem := self._find_problem(attempt):
            refuse_task(problem)
        request = {**self._build_request(attempt), "answer": attempt.code.encode(), "view": _VIEW}
        if (
            attempt.task.signature is None
        ):  # the front looks which names they need; the compiler does not see them
            request["tests"] = attempt.task.tests.encode()
        outcome = self._run_front(attempt, "answer", request)
        reply = decode_sections(outcome.report)
        if reply is None:
            _refuse_starved(outcome, "the compiler")
            limit = outcome.exit_reason is ExitReason.CPU_LIMIT
            if not limit:
                # Compile a trivial answer to tell this answer's crash from a broken sandbox.
                toy = {
                    "ocamlc": self._toolchain.ocamlc.encode(),
                    "view": _VIEW,
                    "module": b"toy",
                    "answer": TOY,
                }
                if decode_sections(self._run_front(attempt, "answer", toy).report) is None:
                    raise SandboxFault(
                        f"the compiler does not run in its box: {_describe_exit(outcome)}"
                    )
            return build_failure_facts(limit=limit)
        facts_data = parse_section(reply, "facts")
        facts = parse_facts(facts_data)
        if facts_data["compiled"]:
            return self._compile_tests(attempt, facts, reply)
        return facts

    def _compile_tests(
        self, attempt: GradingAttempt, facts: CodeFacts, compiled: Mapping[str, bytes]
    ) -> CodeFacts:
        outcome = self._run_front(attempt, "tests", self._build_tests_request(attempt, compiled))
        reply = decode_sections(outcome.report)
        if reply is None:
            _refuse_starved(outcome, "the compiler")
            raise InternalFault(
                f"the tests could not be compiled: {outcome.exit_reason}: {_describe_exit(outcome)}"
            )
        plan = parse_section(reply, "plan")
        if plan["mismatch"]:
            return build_mismatch_facts(facts, plan)
        attempt.outside = plan["outside"], plan["total"]
        attempt.warnings = tuple(plan["warnings"])
        return self._run_tests(attempt, facts, reply, plan["total"])

    def _find_problem(self, attempt: GradingAttempt) -> str | None:
        """Return why the task's tests judge no answer; None if nothing is wrong. Each task is run
        with a control once."""
        task = attempt.task
        if task.signature is not None and not task.signature.strip():
            return None  # a control of nothing would pass or fail whatever the tests are
        key = hashlib.sha256(task.model_dump_json().encode(errors="surrogatepass")).digest()
        with self._lock:
            if key in self._problems:
                return self._problems[key]
        problem = self._run_control(attempt)
        with self._lock:
            self._problems[key] = problem
            if len(self._problems) > _CACHED_TASKS:
                del self._problems[next(iter(self._problems))]
        return problem

    def _run_control(self, attempt: GradingAttempt) -> str | None:
        control = {"answer": b"", "view": _VIEW, "control": CONTROL}
        request = {**self._build_request(attempt), **control}
        outcome = self._run_front(attempt, "answer", request)
        _refuse_starved(outcome, "the compiler")
        reply = decode_sections(outcome.report)
        if reply is None or not parse_section(reply, "facts")["compiled"]:
            return None
        request = {**self._build_tests_request(attempt, reply), "control": CONTROL}
        outcome = self._run_front(attempt, "tests", request)
        _refuse_starved(outcome, "the compiler")
        reply = decode_sections(outcome.report)
        if reply is None or (plan := parse_section(reply, "plan"))["mismatch"]:
            return None
        outcome, proof, _ = self._run_program(attempt, reply, plan["total"])
        if outcome.exit_reason is ExitReason.CPU_LIMIT:
            ended = "cpu limit"
        elif outcome.exit_reason is ExitReason.EXITED:
            ended = f"exit {outcome.exit_code}"
        else:
            ended = f"signal {outcome.exit_reason}"
        return find_task_problem(ended, proof)

    def _build_tests_request(
        self, attempt: GradingAttempt, compiled: Mapping[str, bytes]
    ) -> Sections:
        inputs = {}
        for name, data in compiled.items():
            if name != "facts":
                inputs[f"in/{name.removeprefix('out/')}"] = data
        request = {**self._build_request(attempt), **inputs, "tests": attempt.task.tests.encode()}
        request["includes"] += f"\n{MOUNT}".encode()  # the harness, which answers never see
        return request

    def _run_tests(
        self, attempt: GradingAttempt, facts: CodeFacts, reply: Sections, expected: int
    ) -> CodeFacts:
        outcome, proof, cpu_ms = self._run_program(attempt, reply, expected)
        output_kb = self._config.compute_run_limits(attempt.task.limits).output_kb
        return add_test_run(facts, proof, *find_exceeded_limit(outcome, cpu_ms / 1e3, output_kb))

    def _run_program(
        self, attempt: GradingAttempt, reply: Sections, expected: int
    ) -> tuple[Outcome, HarnessReport, int]:
        """Return how the program ended, its report, and its CPU limit in milliseconds."""
        limits = replace(self._config.compute_run_limits(attempt.task.limits), stall_s=_STALL_S)
        cpu_ms = self._config.compute_run_cpu_ms(attempt.task.limits, brief=attempt.is_brief)
        packages = "false" if is_warm_eligible(attempt.task) else "true"
        command = Command(
            argv=(self._toolchain.ocamlrun, "/box/program"),
            limits=limits,
            stdin=f"{cpu_ms} {packages}\n{attempt.secret}{attempt.show}\n".encode()
            + reply["sheet"],
            files={"/box/program": reply["out/program"]},
            binds=self._toolchain.run_binds,
            mounts={str(self._toolchain.build / SEAL): f"{MOUNT}/{SEAL}"},
        )
        outcome = self._run(attempt, command)
        _refuse_starved(outcome, "the answer")
        proof = parse_test_report(outcome.report, attempt.secret, expected)
        if not proof.started and outcome.exit_reason is ExitReason.EXITED:
            raise SandboxFault(f"the program did not start: {_describe_exit(outcome)}")
        if outcome.exit_reason is ExitReason.EXITED and _is_stopped_by_timer(outcome, cpu_ms):
            outcome = replace(outcome, exit_reason=ExitReason.CPU_LIMIT)
        if outcome.exit_reason is ExitReason.CPU_LIMIT and attempt.is_brief:
            raise NeedsTime
        return outcome, proof, cpu_ms

    def _build_request(self, attempt: GradingAttempt) -> Sections:
        toolchain = self._toolchain
        packages = toolchain.packages(attempt.task.packages)
        harness = [LIBRARY, TESTS_LIBRARY]
        for unit in HARNESS_UNITS[:-1]:
            if unit != "oUnit2" or attempt.framework == "ounit2":
                harness.append(f"{unit}.cmo")
        request = {
            "ocamlc": toolchain.ocamlc,
            "includes": "\n".join(packages.includes),
            "archives": "\n".join(packages.archives),
            "ppx": "\n".join(packages.ppx),
            "harness": "\n".join([*_LOADING_THE_SEAL, *(f"{MOUNT}/{name}" for name in harness)]),
            **{f"file/{name}": text for name, text in attempt.task.files.items()},
        }
        return {
            **attempt.build_sections(),
            **{name: text.encode() for name, text in request.items()},
        }

    def _run_front(self, attempt: GradingAttempt, mode: str, request: Sections) -> Outcome:
        limits = replace(
            self._config.compute_cold_compile_limits(attempt.task.limits), report_kb=65536
        )
        command = Command(
            argv=(f"{MOUNT}/front", mode),
            limits=limits,
            stdin=encode_sections(request),
            binds=self._toolchain.compile_binds,
            mounts={str(self._toolchain.build): MOUNT},
        )
        return self._run(attempt, command)

    def _run(self, attempt: GradingAttempt, command: Command) -> Outcome:
        memory_mb = command.limits.memory_mb + self._toolchain.reserved_mb
        limits = replace(command.limits, memory_mb=memory_mb)
        outcome = self._sandbox.run(
            replace(command, limits=limits, environment=self._toolchain.environment)
        )
        attempt.cpu_s += outcome.cpu_s
        return outcome


def _refuse_starved(outcome: Outcome, program: str) -> None:
    if outcome.exit_reason is ExitReason.WALL_STARVED:
        raise SandboxFault(f"{program} got no CPU: this machine is overloaded")


def _describe_exit(outcome: Outcome) -> str:
    message = outcome.stderr.decode(errors="replace").strip()[-500:]
    return f"exit code {outcome.exit_code}: {message or 'nothing said'}"


def _is_stopped_by_timer(outcome: Outcome, cpu_ms: int) -> bool:
    """Return whether its own account of CPU time, and that of the clock's ticks, differ."""
    return outcome.exit_code == _TIMER and outcome.cpu_s * 1e3 >= 0.5 * cpu_ms
