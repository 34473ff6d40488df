"""The Rust grader: read the answer, check and lint and compile it alone, compile the tests against
it, run them.

Verdicts are those of `cargo check`, `cargo clippy` and `cargo test -- --include-ignored` where an
answer plays fair. Reports of the answer's process count only with the run's secret.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradus.contract import Diagnostic, Severity, Stage, TaskSubmission
from gradus.errors import InternalFault, SandboxFault
from gradus.tasks.rust import RustTask
from services.graders.base.code import add_test_run, with_form
from services.graders.base.config_loader import read_settings
from services.graders.base.grader import BaseGrader
from services.graders.rust.answer import FORBIDDEN_IN_MACROS, RustAnswer, read_answer
from services.graders.rust.appended_calls import can_append
from services.graders.rust.compile import (
    FOREIGN_BLOCK,
    MAX_DIAGNOSTICS,
    TOY,
    Compiled,
    Compiler,
    CompilerMessage,
    CompileStatus,
)
from services.graders.rust.config import RustConfig
from services.graders.rust.glob_imports import may_call_macros
from services.graders.rust.imported_names import ImportedNames
from services.graders.rust.lexer import MAX_TOKENS, TooManyTokens, code, list_texts, remove_comments
from services.graders.rust.own_words import (
    EQUALITY,
    find_compared_types,
    find_own_traits,
    find_own_word,
    find_provided,
)
from services.graders.rust.remote_answer import Needs, RemoteTexts, find_needs, render_remote
from services.graders.rust.rubric import RUBRICS, RustFacts
from services.graders.rust.runner import Runner, RunResult
from services.graders.rust.signature import Signature, read_signature
from services.graders.rust.task_check import (
    build_library,
    build_stub,
    find_declaration_error,
    find_signature_error,
    find_task_error,
    publish_declared,
)
from services.graders.rust.tests_file import TestsFile, write_tests_file
from services.graders.rust.toolchain import HARNESS_CRATE, RustToolchain
from services.graders.rust.values import value_text
from services.sandbox import Sandbox
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.escape_probe import refuse_unless_safe
from services.sandbox.memory_budget import BoxMemory
from services.sandbox.nested_boxes import STANDING_MB, NestedBoxes, find_nested_boxes

log = logging.getLogger("gradus.worker")

_CHECKED_TASKS = 1000
"""Tasks of which is kept whether their tests compile."""
_COMPILED_TASKS = 256
"""Tasks of which compiled tests are kept, 0.1 to 0.3 MB each."""
_STANDING_MB = 24 + STANDING_MB
"""Three idle compile servers, 14 MB measured, what is left of the last request, and a box for
runs."""
_REMOTE_ATTEMPTS = 4
"""Compilations of a task's tests with proxies, each with what the one before lacked."""
_IMPORTS = 4
"""Compilations of tests that import everything, each with the names that the one before lacked."""
_TAKEN = frozenset({"std", "core", "alloc", "test", "proc_macro", "gradus_tests", HARNESS_CRATE})
"""Crates that tests use beside the answer's: one that was called so could not be told apart."""
_SYNTAX = frozenset({None, "E0748", "E0758", "E0762", "E0763", "E0765", "E0766", "E0768"})
"""Codes of errors of the lexer; errors of the parser and of macros have none."""
_OF_UNSAFE = ("no_mangle", "export_name", "link_section", "global_asm")
"""What the compiler's lint names beside `unsafe`."""
_OWN_EQUALITY = (
    "tests may compare values of this answer's types in its own process, where `PartialEq` that is"
    " written by hand could say that anything is what they expect: derive it"
)
_OWN_METHOD = (
    "tests may judge values of this answer's types in its own process by this method, which its"
    " trait provides: leave it out"
)
_NO_TESTS = "its tests have no `#[test]`"
_NO_CREDIT = frozenset({"use", "extern", ""})
"""Words of items that can be wrong and that no task asks for."""


@dataclass(frozen=True, slots=True)
class _RemoteTests:
    """The tests of a task as a program of their own, for any answer."""

    program: bytes
    texts: RemoteTexts


_TaskKey = tuple[str | None, ...]


@dataclass
class _GradingAttempt:
    """One answer to one task on its way through boxes."""

    task: RustTask
    signature: Signature | None
    answer: RustAnswer
    slot: int
    remote: _RemoteTests | None = None
    """Tests that run in a process of their own; None where the answer's process runs them."""
    cpu_s: float = 0.0

    @property
    def key(self) -> _TaskKey:
        """Return what tests that were compiled before belong to."""
        return (self.task.crate, self.task.edition, self.task.signature, self.task.tests)

    def add(self, compiled: Compiled) -> Compiled:
        """`compiled`, whose CPU time was for this answer."""
        self.cpu_s += compiled.cpu_s
        return compiled


def compute_box_memory(config: RustConfig) -> BoxMemory:
    """Return what one slot's boxes need."""
    return BoxMemory(_STANDING_MB, max(config.compile.memory_mb, config.run.memory_mb))


class RustGrader(BaseGrader[RustTask, RustFacts]):
    name = "rust"
    task = RustTask
    shipped = RUBRICS
    value_text = staticmethod(value_text)

    def __init__(self, config: Path | None = None, sandbox: Sandbox | None = None) -> None:
        self.config = read_settings(RustConfig, self.name, config)
        self.sandbox = sandbox or Bubblewrap()
        self.toolchain = RustToolchain()
        self.crates = self.toolchain.build_crates(self.config.crates)
        self.compiler = Compiler(self.sandbox, self.toolchain, self.crates, self.config)
        self.runs = find_nested_boxes(self.sandbox)
        """Where programs of tests and answers run."""
        self.runner = Runner(self.runs, self.toolchain, self.config)
        self._checked_tasks: dict[bytes, str | None] = {}
        """Digest of a task -> what is wrong with it, for tasks whose tests did not compile against
        some answer."""
        self._unsigned: set[str] = set()
        """Tests of tasks without a signature, of which the log knows."""
        self._remote: dict[_TaskKey, _RemoteTests | None] = {}
        """By task; None where answer and tests share a process."""
        self._lock = threading.Lock()
        """Guards `_remote`."""
        self.identify(
            self.config,
            config,
            toolchain=f"rust {self.toolchain.version}",
            sandbox=self.sandbox.name,
            versions=(self.toolchain.commit, self.crates.revision),
        )

    def get_box_memory(self) -> BoxMemory:
        return compute_box_memory(self.config)

    def self_test(self) -> None:
        for sandbox in {self.sandbox, self.runs}:
            refuse_unless_safe(sandbox)
        super().self_test()

    def close(self) -> None:
        self.compiler.close()
        self.close_idle_runs()

    def close_idle_runs(self) -> None:
        """Close the boxes for runs that have nothing to do."""
        if isinstance(self.runs, NestedBoxes):
            self.runs.close()

    def facts(
        self, submission: TaskSubmission[RustTask], slot: int = 0, rubric: str = ""
    ) -> tuple[RustFacts, float]:
        task = submission.task
        signature = read_signature(task)
        why = _find_refusal(task, signature)
        if why:
            raise InternalFault(f"this task cannot be judged: {why}", retryable=False)
        if signature is None and not task.cases:
            self._log_missing_signature(submission)
        answer = read_answer(submission.completion, task, signature)
        exports_macros = may_call_macros(task.tests, task.crate, task.edition)
        answer = replace(answer, exports_macros=exports_macros)
        attempt = _GradingAttempt(task, signature, answer, slot)
        if signature is not None and not signature.is_certain:
            self._refuse_broken_task(attempt)
        try:
            attempt.answer = answer = _publish(answer, task)
            uncommented = remove_comments(answer.form.text, task.edition, MAX_TOKENS)
            attempt.remote = self._get_remote_tests(attempt)
            return with_form(self._collect_facts(attempt), answer.form, uncommented), attempt.cpu_s
        except TooManyTokens:
            facts = _make_facts(Stage.CHECK, f"the answer has more than {MAX_TOKENS} tokens")
            return replace(facts, flags=(*answer.form.flags, "limit:tokens")), attempt.cpu_s

    def _log_missing_signature(self, submission: TaskSubmission[RustTask]) -> None:
        """Log, once per task, that tests see whatever its answers define."""
        tests = submission.task.tests
        if tests in self._unsigned:
            return
        if len(self._unsigned) >= _CHECKED_TASKS:
            self._unsigned.clear()
        self._unsigned.add(tests)
        log.warning(
            "the task of %s has no signature, so tests see whatever an answer defines:"
            " `gradus tasks sign` derives one from a reference answer",
            submission.id,
        )

    def _collect_facts(self, attempt: _GradingAttempt) -> RustFacts:
        answer = attempt.answer
        if answer.empty:
            return _make_facts(Stage.EXTRACT, "there is no code in the completion")
        if answer.forbidden:
            names = dict.fromkeys(f"forbidden:{diagnostic.code}" for diagnostic in answer.forbidden)
            return RustFacts(Stage.CHECK, flags=tuple(names), diagnostics=answer.forbidden)
        facts = self._append_calls(attempt)
        if facts:
            return facts
        compiled = attempt.add(self.compiler.compile_answer(answer, attempt.task, attempt.slot))
        if compiled.status is CompileStatus.BROKE:
            self._refuse_broken_box(attempt)
        facts = _build_facts(compiled, attempt)
        if facts.stage is not Stage.CLIPPY:
            return facts
        derived = not any(own_trait.trait == EQUALITY for own_trait in find_own_traits(answer))
        return self._test_answer(attempt, facts, compiled.product, derived=derived)

    def _refuse_broken_box(self, attempt: _GradingAttempt) -> None:
        """Compile and run a trivial answer, to tell this answer's crash from a broken sandbox.

        Raises SandboxFault when it fails too.
        """
        task = RustTask(tests="#[test] fn toy() {}")
        toy = self.compiler.compile_answer(read_answer(TOY, task, None), task, attempt.slot)
        if toy.status is not CompileStatus.COMPILED:
            raise SandboxFault(f"the compiler does not run in its box: {toy.status}: {toy.remarks}")
        file = write_tests_file(task, None)
        tests = self.compiler.compile_tests(file, toy.product, task, attempt.slot)
        doubt = self.runner.run_tests(tests.product, task).doubt
        if doubt:
            raise SandboxFault(f"programs do not start in their box: {doubt}")

    def _refuse_broken_task(self, attempt: _GradingAttempt) -> None:
        """The tests do not compile against an answer. Raises InternalFault if they do not against a
        stub, either."""
        task = attempt.task
        key = hashlib.sha256(task.model_dump_json().encode()).digest()
        if key not in self._checked_tasks:
            if len(self._checked_tasks) >= _CHECKED_TASKS:
                self._checked_tasks.clear()
            self._checked_tasks[key] = self._find_task_error(task, attempt.slot)
        error = self._checked_tasks[key]
        if error:
            raise InternalFault(f"this task cannot be judged: {error}", retryable=False)

    def count_outside_tests(
        self, submission: TaskSubmission[RustTask], slot: int = -1
    ) -> tuple[int, int]:
        """Return how many tests compare outside the answer's process, and how many there are. A
        program's cases all do.

        `submission`: with the reference answer.
        """
        facts, _ = self.facts(submission, slot)
        total = facts.tests.total if facts.tests else 0
        task = submission.task
        signature = read_signature(task)
        attempt = _GradingAttempt(task, signature, build_library(task, ""), slot)
        if task.cases or self._get_remote_tests(attempt):
            return total, total
        expected = write_tests_file(task, signature).expected
        return len({name for name, _ in expected}), total

    def read_output(
        self, task: RustTask, solution: str, slot: int = -1, *, is_partial: bool = False
    ) -> str:
        """Return what a program writes when it reads nothing; empty if it does not compile, or if
        it fails, unless `is_partial`."""
        answer = read_answer(solution, task, None)
        compiled = self.compiler.compile_answer(answer, task, slot)
        if compiled.status is not CompileStatus.COMPILED:
            return ""
        return self.runner.read_output(compiled.product, task, is_partial=is_partial)

    def task_problem(self, task: RustTask, solution: str | None, slot: int = -1) -> str | None:
        """Return what is wrong with signature or tests, with its line: no answer can mend it, or
        `solution` does not.

        For the task's author: the message may hold text of the tests. `slot`: other than those that
        grade meanwhile.
        """
        signature = read_signature(task)
        error = _find_refusal(task, signature)
        if error or task.cases:
            return error
        error = self._find_task_error(task, slot)
        if error is None and not _has_tests(task):
            error = _NO_TESTS
        if error or not solution:
            return error
        attempt = _GradingAttempt(task, signature, build_library(task, solution), slot)
        compiled = self.compiler.compile_answer(attempt.answer, task, slot)
        if compiled.status is not CompileStatus.COMPILED:
            return None
        compiled, tests = self._compile_tests(attempt, compiled.product)
        for message in compiled.errors:
            line = tests.find_task_line(message.outer_line)
            if line:
                return f"line {line} of its tests, with the reference answer: {message.text}"
        return None

    def _find_task_error(self, task: RustTask, slot: int) -> str | None:
        """Return what no answer can mend in the task, with its line."""
        signature = read_signature(task)
        compiled = self.compiler.compile_answer(build_stub(task, task.signature), task, slot)
        is_complete = compiled.status is CompileStatus.COMPILED
        if not is_complete:
            error = find_declaration_error(compiled)
            if error:
                return error
            compiled = self.compiler.compile_answer(build_stub(task, None), task, slot)
        if compiled.status is not CompileStatus.COMPILED:
            return None
        tests = write_tests_file(task, signature)
        compiled = self.compiler.compile_tests(tests, compiled.product, task, slot)
        error = find_task_error(task, signature, compiled, tests, is_complete=is_complete)
        return error or find_signature_error(signature, compiled, tests, is_complete=is_complete)

    def _test_answer(
        self, attempt: _GradingAttempt, facts: RustFacts, product: bytes, *, derived: bool
    ) -> RustFacts:
        task = attempt.task
        if task.cases:
            return self._apply_run(attempt, facts, self.runner.run_cases(product, task))
        compiled, tests = self._compile_tests(attempt, product, derived=derived)
        name = None
        if attempt.signature is None:
            name = find_own_word(task, attempt.answer)
        if name:
            why = f"`{name}` of the answer may stand in for the standard library's in the tests"
            return replace(_add_remarks(facts, [why]), flags=(*facts.flags, "forbidden:hijack"))
        if compiled.status is CompileStatus.REFUSED:
            if attempt.remote and not self._fits_stub(attempt, attempt.remote):
                attempt.remote = None
                with self._lock:
                    self._remote[attempt.key] = None
                return self._test_answer(attempt, facts, product, derived=derived)
            self._refuse_broken_task(attempt)
        if compiled.status is not CompileStatus.COMPILED:
            return _report_misfit(facts, attempt, compiled, tests)
        return self._run_tests(attempt, facts, compiled.product, tests.expected)

    def _run_tests(
        self,
        attempt: _GradingAttempt,
        facts: RustFacts,
        program: bytes,
        expected: Sequence[tuple[str, str]] = (),
    ) -> RustFacts:
        """Run the tests: `program`, or those that have a program of their own, beside it."""
        task, remote = attempt.task, attempt.remote
        if remote:
            ran = self.runner.run_tests(remote.program, task, answer=program)
        else:
            ran = self.runner.run_tests(program, task, expected)
        if not ran.proof.tests.total and not _has_tests(task):
            raise InternalFault(f"this task cannot be judged: {_NO_TESTS}", retryable=False)
        return self._apply_run(attempt, facts, ran)

    def _get_remote_tests(self, attempt: _GradingAttempt) -> _RemoteTests | None:
        """Return the tests of the task as a program of their own, if its signature allows that."""
        with self._lock:
            if attempt.key in self._remote:
                return self._remote[attempt.key]
        remote = self._compile_remote_tests(attempt)
        with self._lock:
            if len(self._remote) >= _COMPILED_TASKS:
                self._remote.clear()
            self._remote[attempt.key] = remote
        return remote

    def _compile_remote_tests(self, attempt: _GradingAttempt) -> _RemoteTests | None:
        task, signature = attempt.task, attempt.signature
        if signature is None or task.cases:
            return None
        needs = Needs()
        for _ in range(_REMOTE_ATTEMPTS):
            texts = render_remote(task, signature, needs)
            if texts is None:
                return None
            compiled = self.compiler.compile_tests(texts.tests, b"", task, attempt.slot)
            attempt.add(compiled)
            if compiled.status is CompileStatus.COMPILED:
                return _RemoteTests(compiled.product, texts)
            more = find_needs(needs, signature, [error.text for error in compiled.errors])
            if more == needs:
                return None
            needs = more
        return None

    def _fits_stub(self, attempt: _GradingAttempt, remote: _RemoteTests) -> bool:
        """Return whether the dispatcher compiles with a library that is as the signature says."""
        task, slot = attempt.task, attempt.slot
        stub = self.compiler.compile_answer(build_stub(task, task.signature), task, slot)
        if stub.status is not CompileStatus.COMPILED:
            return False
        compiled = self.compiler.compile_tests(remote.texts.dispatcher, stub.product, task, slot)
        return compiled.status is CompileStatus.COMPILED

    def _append_calls(self, attempt: _GradingAttempt) -> RustFacts | None:
        """Return what the answer earns, compiled with calls at its end; None where it has to be
        compiled without."""
        answer, task, slot = attempt.answer, attempt.task, attempt.slot
        texts = attempt.remote.texts if attempt.remote else None
        if not (texts and texts.appended and can_append(answer, texts.methods)):
            return None
        compiled = self.compiler.compile_answer(answer, task, slot, appended=texts.appended)
        attempt.add(compiled)
        last = answer.files[answer.entry].count("\n") + 1
        own_remarks = []
        for remark in compiled.remarks:
            if remark.path != answer.entry or remark.line <= last:
                own_remarks.append(remark)
            elif remark.severity is Severity.ERROR:
                return None
        if compiled.status is CompileStatus.BROKE:
            return None
        compiled = replace(compiled, remarks=tuple(own_remarks))
        facts = _build_facts(compiled, attempt)
        if facts.stage is not Stage.CLIPPY:
            return facts
        linked = attempt.add(self.compiler.link(compiled.product, task, slot))
        if not linked.product:
            return None
        return self._run_tests(attempt, facts, linked.product)

    def _compile_tests(
        self, attempt: _GradingAttempt, product: bytes, *, derived: bool = True
    ) -> tuple[Compiled, TestsFile]:
        """Return the tests compiled against the answer.

        `derived`: the answer derives `PartialEq` wherever it has it.
        """
        task = attempt.task
        imports = ImportedNames(task, attempt.answer)
        for _ in range(_IMPORTS):
            if attempt.remote:
                tests = attempt.remote.texts.dispatcher
            else:
                tests = write_tests_file(
                    task, attempt.signature, imports.names, imports.enums, derived=derived
                )
            compiled = attempt.add(self.compiler.compile_tests(tests, product, task, attempt.slot))
            if attempt.remote or not imports.refine(compiled.errors):
                break
        if compiled.status is CompileStatus.BROKE:
            self._refuse_broken_box(attempt)
        return compiled, tests

    def _apply_run(self, attempt: _GradingAttempt, facts: RustFacts, ran: RunResult) -> RustFacts:
        attempt.cpu_s += ran.cpu_s
        if ran.doubt:
            self._refuse_broken_box(attempt)
        return add_test_run(replace(facts, typed_share=1.0), ran.proof, ran.limit)


def _publish(answer: RustAnswer, task: RustTask) -> RustAnswer:
    """Return the answer with what the signature declares made public, as tests inside of its file
    would see it. Raises TooManyTokens."""
    if task.signature is None or answer.entry not in answer.own_files:
        return answer
    text = answer.own_files[answer.entry]
    public = publish_declared(text, answer.items[answer.entry], task.signature)
    if public == text:
        return answer
    form = replace(answer.form, flags=(*answer.form.flags, "visibility"))
    changed = {answer.entry: public}
    files, own_files = {**answer.files, **changed}, {**answer.own_files, **changed}
    return replace(answer, form=form, files=files, own_files=own_files)


def _has_tests(task: RustTask) -> bool:
    """Return whether the tests have a test, or macros of files or crates may make some."""
    if task.cases or task.files or task.dependencies:
        return True
    return "test" in list_texts(code(task.tests))


def _find_refusal(task: RustTask, signature: Signature | None) -> str | None:
    """Why no answer can be judged, as far as the task's own text shows."""
    if task.crate in _TAKEN or task.crate in (name.replace("-", "_") for name in task.dependencies):
        return f"no answer can be a crate {task.crate!r}"
    if signature is None:
        return None
    if signature.refused:
        return signature.refused
    if signature.is_certain and not (signature.names or signature.pins):
        return "its signature declares nothing; write `pub fn f(x: i64) -> i64;` or the like"
    return None


def _make_facts(stage: Stage, message: str) -> RustFacts:
    return RustFacts(stage, diagnostics=(Diagnostic(stage=stage, message=message),))


def _find_forbidden(compiled: Compiled, attempt: _GradingAttempt) -> RustFacts | None:
    """Return the facts of an answer in which the compiler found what is forbidden."""
    answer = attempt.answer
    violations = []
    for remark in compiled.remarks:
        if remark.code == "unsafe_code":
            word = next((word for word in _OF_UNSAFE if word in remark.text), "unsafe")
            violations.append((word, remark.path, remark.line, remark.text))
        elif remark.code == FOREIGN_BLOCK and remark.path in answer.own_files:
            violations.append(("extern", remark.path, remark.line, FORBIDDEN_IN_MACROS["extern"]))
    if attempt.remote is None:
        for own_trait in find_compared_types(attempt.task, attempt.signature, answer):
            violations.append((EQUALITY, own_trait.path, own_trait.line, _OWN_EQUALITY))
    for method, path, line in () if attempt.remote else find_provided(attempt.task, answer):
        violations.append((method, path, line, _OWN_METHOD))
    if not violations:
        return None
    diagnostics = []
    flags = {}
    for code_, path, line, why in violations:
        message = answer.format_message(path, why)
        diagnostics.append(Diagnostic(stage=Stage.CHECK, line=line, code=code_, message=message))
        flags[f"forbidden:{code_}"] = True
    first = tuple(diagnostics[:MAX_DIAGNOSTICS])
    return RustFacts(Stage.CHECK, flags=tuple(flags), diagnostics=first)


def _build_facts(compiled: Compiled, attempt: _GradingAttempt) -> RustFacts:
    """Return what the compiler and the linter said of the answer; what is forbidden comes first."""
    forbidden = _find_forbidden(compiled, attempt)
    if forbidden:
        return forbidden
    diagnostics = tuple(compiled.build_diagnostics(attempt.answer))
    stages = {CompileStatus.COMPILED: Stage.CLIPPY, CompileStatus.REFUSED: Stage.CHECK}
    if compiled.status in stages:
        return RustFacts(
            stages[compiled.status],
            typed_share=compute_checked_share(attempt.answer, attempt.signature, compiled.errors),
            diagnostics=diagnostics,
            lints=compiled.lints,
        )
    why = "the answer breaks the compiler"
    flag = "compiler:crash"
    if compiled.status is CompileStatus.LIMIT:
        why = "the compiler did not come to an end within its limits"
        flag = "limit:compile"
    return replace(_make_facts(Stage.CHECK, why), flags=(flag,))


def compute_checked_share(
    answer: RustAnswer,
    signature: Signature | None,
    errors: Sequence[CompilerMessage],
    unfit: Iterable[str] = (),
) -> float:
    """Return share of an answer's items without an error, in [0, 1]; with a signature only declared
    items count as sound.

    rustc checks every item even after errors of names and types; it stops at a syntax error, so the
    share is then 0.

    `unfit`: declared names that are not what they were declared to be.
    """
    if any(error.code in _SYNTAX for error in errors):
        return 0.0
    declared = set(signature.names) if signature else None
    bad = set(unfit)
    sound = set()
    lines = {(error.path, error.line) for error in errors}
    for path, file_items in answer.items.items():
        for number, item in enumerate(file_items):
            name = item.name if path == answer.entry else ""
            known_as = name or f"{path}#{number}"
            if any((path, line) in lines for line in range(item.first_line, item.last_line + 1)):
                bad.add(known_as)
            elif item.word not in _NO_CREDIT and (declared is None or known_as in declared):
                sound.add(known_as)
    sound -= bad
    missing = (declared or set()) - sound - bad
    total = len(sound) + len(bad) + len(missing)
    return len(sound) / total if total else 0.0


def _report_misfit(
    facts: RustFacts, attempt: _GradingAttempt, compiled: Compiled, tests: TestsFile
) -> RustFacts:
    """The tests do not compile against this answer. Says what is declared and missing, and nothing
    of the tests."""
    unfit = {}
    for error in compiled.errors:
        if error.line in tests.pins:
            name = tests.pins[error.line].name
            unfit[name] = f"`{name}` is missing, or has another type than the task declares"
    if compiled.status is CompileStatus.LIMIT:
        facts = replace(facts, flags=(*facts.flags, "limit:compile"))
    why = list(unfit.values()) or [
        "the tests do not compile against this answer: something they use is missing or has another"
        " type"
    ]
    share = compute_checked_share(
        attempt.answer, attempt.signature, (), [name.partition("::")[0] for name in unfit]
    )
    return replace(_add_remarks(facts, why), typed_share=share)


def _add_remarks(facts: RustFacts, why: Sequence[str]) -> RustFacts:
    remarks = (Diagnostic(stage=Stage.TESTS, message=text) for text in why)
    return replace(facts, diagnostics=(*facts.diagnostics, *remarks))
