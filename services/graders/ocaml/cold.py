"""The cold way: the stock compiler in boxes made fresh for each step. For every task; the yardstick of the warm way.

Three boxes: the tests do not exist in the first, nothing of the answer runs in the second, and the third has neither
compiler nor sources.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

from gradus.errors import InternalFault, SandboxFault
from services.graders.base.code import CodeFacts
from services.graders.base.judge import judge
from services.graders.ocaml.config import OcamlConfig
from services.graders.ocaml.toolchain import MOUNT, SEAL, OcamlToolchain
from services.graders.ocaml.trial import (
    TOY,
    Sections,
    Trial,
    facts_of,
    fits,
    gave_up,
    misfit,
    packed,
    ran,
    read,
    unpacked,
)
from services.sandbox import Command, ExitReason, Limits, Outcome, Sandbox

_VIEW = f"{MOUNT}/view".encode()
_STOPPED_BY_ITS_TIMER = 128 + signal.SIGPROF
_LOADING_THE_SEAL = ("-dllib", SEAL, "-dllpath", MOUNT)


class ColdWay:
    def __init__(self, sandbox: Sandbox, toolchain: OcamlToolchain, config: OcamlConfig) -> None:
        self._sandbox = sandbox
        self._toolchain = toolchain
        self._config = config

    def facts(self, trial: Trial) -> CodeFacts:
        """What the boxes show of this answer. Raises Fault for what is not its doing."""
        request = {**self._request(trial), "answer": trial.code.encode(), "view": _VIEW}
        outcome = self._front(trial, "answer", request)
        reply = unpacked(outcome.report)
        if reply is None:
            return self._gave_up(trial, outcome)
        said = read(reply, "facts")
        facts = facts_of(said)
        return self._tested(trial, facts, reply) if said["compiled"] else facts

    def _gave_up(self, trial: Trial, outcome: Outcome) -> CodeFacts:
        """The front said nothing. Was it this answer, or is the box broken? A toy answer in the same box tells."""
        _refuse_starved(outcome, "the compiler")
        limit = outcome.exit_reason is ExitReason.CPU_LIMIT
        if not limit:
            toy = {"ocamlc": self._toolchain.ocamlc.encode(), "view": _VIEW, "module": b"toy", "answer": TOY}
            if unpacked(self._front(trial, "answer", toy).report) is None:
                raise SandboxFault(f"the compiler does not run in its box: {_said(outcome)}")
        return gave_up(limit=limit)

    def _tested(self, trial: Trial, facts: CodeFacts, compiled: Mapping[str, bytes]) -> CodeFacts:
        inputs = {f"in/{name.removeprefix('out/')}": data for name, data in compiled.items() if name != "facts"}
        request = {**self._request(trial), **inputs, "tests": trial.task.tests.encode()}
        request["includes"] += f"\n{MOUNT}".encode()  # the harness, which answers never see
        outcome = self._front(trial, "tests", request)
        reply = unpacked(outcome.report)
        if reply is None:
            _refuse_starved(outcome, "the compiler")
            raise InternalFault(f"the tests could not be compiled: {outcome.exit_reason}: {_said(outcome)}")
        plan = read(reply, "plan")
        if plan["mismatch"]:
            return misfit(facts, plan["mismatch"])
        return self._ran(trial, facts, reply["out/program"], plan["total"])

    def _ran(self, trial: Trial, facts: CodeFacts, program: bytes, expected: int) -> CodeFacts:
        limits = self._config.run_limits(trial.task.limits)
        cpu_ms = self._config.run_cpu_ms(trial.task.limits)
        packages = "false" if fits(trial.task) else "true"
        command = Command(
            argv=(self._toolchain.ocamlrun, "/box/program"),
            limits=limits,
            stdin=f"{trial.secret} {cpu_ms} {packages}\n".encode(),
            files={"/box/program": program},
            binds=self._toolchain.run_binds,
            mounts={str(self._toolchain.build / SEAL): f"{MOUNT}/{SEAL}"},
        )
        outcome = self._run(trial, command)
        _refuse_starved(outcome, "the answer")
        proof = judge(outcome.report, trial.secret, expected)
        if not proof.started and outcome.exit_reason is ExitReason.EXITED:
            raise SandboxFault(f"the program did not start: {_said(outcome)}")
        return ran(facts, proof, *_limit_hit(outcome, cpu_ms, limits))

    def _request(self, trial: Trial) -> Sections:
        toolchain = self._toolchain
        packages = toolchain.packages(trial.task.packages)
        harness = ["gradus_harness", "gradus_start", *(["oUnit2"] if trial.framework == "ounit2" else [])]
        request = {
            "ocamlc": toolchain.ocamlc,
            "includes": "\n".join(packages.includes),
            "archives": "\n".join(packages.archives),
            "ppx": "\n".join(packages.ppx),
            "harness": "\n".join([*_LOADING_THE_SEAL, *(f"{MOUNT}/{unit}.cmo" for unit in harness)]),
            **{f"file/{name}": text for name, text in trial.task.files.items()},
        }
        return {**trial.sections(), **{name: text.encode() for name, text in request.items()}}

    def _front(self, trial: Trial, mode: str, request: Sections) -> Outcome:
        limits = replace(self._config.cold_compile_limits(trial.task.limits), report_kb=65536)
        command = Command(
            argv=(f"{MOUNT}/front", mode),
            limits=limits,
            stdin=packed(request),
            binds=self._toolchain.compile_binds,
            mounts={str(self._toolchain.build): MOUNT},
        )
        return self._run(trial, command)

    def _run(self, trial: Trial, command: Command) -> Outcome:
        memory_mb = command.limits.memory_mb + self._toolchain.reserved_mb
        limits = replace(command.limits, memory_mb=memory_mb)
        outcome = self._sandbox.run(replace(command, limits=limits, environment=self._toolchain.environment))
        trial.cpu_s += outcome.cpu_s
        return outcome


def _refuse_starved(outcome: Outcome, what: str) -> None:
    if outcome.exit_reason is ExitReason.WALL_STARVED:
        raise SandboxFault(f"{what} got no CPU: this machine is overloaded")


def _said(outcome: Outcome) -> str:
    said = outcome.stderr.decode(errors="replace").strip()[-500:]
    return f"exit code {outcome.exit_code}: {said or 'nothing said'}"


def _limit_hit(outcome: Outcome, cpu_ms: int, limits: Limits) -> tuple[str | None, str | None]:
    exit_reason = outcome.exit_reason
    used_up = outcome.cpu_s * 1e3 >= 0.5 * cpu_ms  # its own account, and that of the clock's ticks, differ
    if exit_reason is ExitReason.EXITED and outcome.exit_code == _STOPPED_BY_ITS_TIMER and used_up:
        exit_reason = ExitReason.CPU_LIMIT
    match exit_reason:
        case ExitReason.CPU_LIMIT:
            return "cpu", f"the answer was stopped after {cpu_ms / 1e3:g} s of CPU time"
        case ExitReason.WALL_IDLE:
            return "wall", f"the answer was stopped: it slept for {limits.wall_s:.0f} s"
        case ExitReason.OUTPUT_LIMIT:
            return "output", f"the answer was stopped: it wrote more than {2 * limits.output_kb} kB"
        case _:
            return None, None
