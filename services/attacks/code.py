"""Corpora of hostile answers to one task: reads them and reports the attacks that got through.

`corpus.yaml` has the task, its right answer, the number of its `tests`, and `unearned`, the most
reward of an answer that passes none of them. `prompt`, `wrong` and `honest` (further right answers)
serve `gradus attack --target` alone. An attack is an entry of its list `attacks`, with
`name` and `completion`, or a file beside it (`files: {suffix, comment}`), whose first comment has
one `key: value` on a line. It says what must not happen (`must not`) and what differs from the
usual:
  earned     tests that it passes by honest means (0)
  stage      stages that it may reach (tests)
  flags      flags of the verdict
  wall_s     wall limit of the run, for tests with a grader of their own
  suite      tests, in place of the corpus's `suite`
and the fields of the task that `fields` names, each as text, words or JSON. `@CANARY@`, `@PORT@`,
`@PID@` and `@MARKER@` stand for things of the host that tests watch, `@3 times a#;@` for
`a0;a1;a2;`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from gradus.contract import SUBMISSIONS, Faulted, Graded, RawSubmission, Submission
from gradus.errors import Misuse
from gradus.validation import explain
from services.attacks import Line, Trial, TrialKind, corpus_folder

FILE = "corpus.yaml"
_TIMES = re.compile(r"@(\d+) times (.*?)@", re.DOTALL)
_PARSERS: Mapping[str, Callable[[str], Any]] = {"text": str, "words": str.split, "json": json.loads}
_KEYS = ("must not", "earned", "stage", "flags", "wall_s", "suite")


class _Files(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    suffix: str
    # Pattern of the comment at the head of a file; its first group is the text of the comment.
    comment: str


class _Corpus(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    task: dict[str, Any]
    prompt: str = ""
    right: str
    wrong: str = ""  # answer that compiles and passes no test
    tests: int
    unearned: float
    fields: dict[str, Literal["text", "words", "json"]] = {}
    suite: str = ""  # the tests of `task`, written in another way
    suite_around: str = "@CASES@"  # text around the `suite` of an attack, which replaces `@CASES@`
    files: _Files | None = None
    attacks: tuple[dict[str, Any], ...] = ()
    honest: tuple[dict[str, Any], ...] = ()  # right answers in other languages or ways


@dataclass(frozen=True)
class Attack:
    corpus: CodeCorpus
    name: str
    source: str
    task: Mapping[str, Any]
    suite: str
    must_not: str = ""
    earned: int = 0
    stages: frozenset[str] = frozenset({"tests"})
    flags: frozenset[str] = frozenset()
    wall_s: float | None = None

    def build_submission(self, completion: str | None = None, **task: Any) -> Submission:
        """Return this attack, or another completion, with further fields of the task."""
        if completion is None:
            completion = fill_placeholders(self.source)
        kind: type[Submission] = SUBMISSIONS.get(self.corpus.grader, RawSubmission)
        return kind.model_validate(
            {"id": self.name, "completion": completion, "task": {**self.task, **task}}
        )

    def find_breach(self, result: Graded | Faulted) -> str | None:
        """Return the forbidden effect of the attack; None when it was held. A fault is such an
        effect."""
        about = self.corpus.about
        if isinstance(result, Faulted):
            return f"a fault in place of a verdict: {result.fault.message}"
        if result.tests is not None and result.tests.passed != self.earned:
            return f"{result.tests.passed} tests, having earned {self.earned}"
        if result.reward > about.unearned + (1 - about.unearned) * self.earned / about.tests + 1e-6:
            return f"a reward of {result.reward}"
        if result.stage not in self.stages:
            return f"as far as {result.stage}"
        missing = self.flags - set(result.flags)
        if missing:
            return f"away without {', '.join(sorted(missing))}"
        return None


@dataclass(frozen=True)
class CodeCorpus:
    grader: str
    about: _Corpus
    attacks: dict[str, Attack]
    words = ("held", "THROUGH")

    @classmethod
    def read(cls, grader: str, folder: Path | None = None) -> CodeCorpus:
        """Raise Misuse when there is no corpus, and for a file that cannot be read."""
        folder = folder or corpus_folder(grader)
        try:
            about = _Corpus.model_validate(yaml.safe_load((folder / FILE).read_text()))
        except (OSError, yaml.YAMLError) as error:
            raise Misuse(f"{folder / FILE}: cannot be read: {error}") from None
        except ValidationError as error:
            raise Misuse(f"{folder / FILE}: {explain(error)}") from None
        corpus = cls(grader, about, {})
        entries = {f"{folder / FILE}: {entry.get('name')}": entry for entry in about.attacks}
        if about.files:
            line = re.compile(
                rf"^(?://)?\s*({'|'.join((*_KEYS, *about.fields))}):\s*(.*?)\s*$", re.MULTILINE
            )
            for path in sorted(folder.glob(f"*{about.files.suffix}")):
                source = path.read_text()
                head = re.compile(about.files.comment, re.DOTALL).match(source)
                entry = dict(line.findall(head[1])) if head else {}
                entries[str(path)] = {"name": path.stem, "completion": source, **entry}
        for place, entry in entries.items():
            if not {"name", "completion", "must not"} <= entry.keys():
                raise Misuse(
                    f"{place}: gives no name or completion, or does not say what must not happen"
                    " (`must not`)"
                )
            corpus.attacks[entry["name"]] = corpus.attack(entry)
        return corpus

    def attack(self, entry: Mapping[str, Any]) -> Attack:
        """Return the attack that an entry, or the head of a file, describes."""
        task = {}
        for key, kind in self.about.fields.items():
            if key in entry:
                task[key] = _PARSERS[kind](entry[key])
        suite = self.about.suite
        if "suite" in entry:
            suite = self.about.suite_around.replace("@CASES@", entry["suite"])
        return Attack(
            corpus=self,
            name=entry["name"],
            source=entry["completion"],
            task=self.about.task | task,
            suite=suite,
            must_not=entry["must not"],
            earned=int(entry.get("earned", 0)),
            stages=frozenset(entry.get("stage", "tests").split()),
            flags=frozenset(entry.get("flags", "").split()),
            wall_s=float(entry["wall_s"]) if "wall_s" in entry else None,
        )

    @property
    def honest(self) -> Attack:
        """The right answer, as if it were an attack."""
        return Attack(self, "honest", self.about.right, self.about.task, self.about.suite)

    def build_submissions(self) -> list[Submission]:
        return [attack.build_submission() for attack in self.attacks.values()]

    def build_trials(self) -> list[Trial]:
        """Return the corpus for reward functions of others: right answers in several envelopes,
        a wrong one, and the attacks, each in a fence."""
        about = self.about
        fenced = self._fence(about.right, about.task)
        trials = []
        for name, completion in {
            "right": fenced,
            "right_after_a_thought": f"<think>\nDouble it.\n</think>\n\n{fenced}",
            "right_between_words": f"Here is the answer.\n\n{fenced}\n\nIt does what was asked.",
        }.items():
            trials.append(self._build_trial("honest", name, completion, about.task, about.tests))
        for entry in about.honest:
            task = {**about.task, **{key: entry[key] for key in about.fields if key in entry}}
            fenced = self._fence(entry["completion"], task)
            trials.append(self._build_trial("honest", entry["name"], fenced, task, about.tests))
        wrong = self._fence(about.wrong, about.task)
        trials.append(self._build_trial("wrong", "wrong", wrong, about.task, 0))
        for attack in self.attacks.values():
            fenced = self._fence(fill_placeholders(attack.source), attack.task)
            trial = self._build_trial("attack", attack.name, fenced, attack.task, attack.earned)
            trials.append(replace(trial, must_not=attack.must_not))
        return trials

    def _fence(self, code: str, task: Mapping[str, Any]) -> str:
        if "```" in code:
            return code
        return f"```{task.get('language', self.default_language)}\n{code.rstrip()}\n```"

    def _build_trial(
        self, kind: TrialKind, name: str, completion: str, task: Mapping[str, Any], earned: int
    ) -> Trial:
        """Return a trial whose limit is half a test from what it earns."""
        half = -0.5 if kind == "honest" else 0.5
        return Trial(
            name=name,
            kind=kind,
            group=task.get("language", self.default_language),
            prompt=self.about.prompt,
            completion=completion,
            task=task,
            limit=(earned + half) / self.about.tests,
        )

    @property
    def default_language(self) -> str:
        return "python" if self.grader == "program" else self.grader

    def render_lines(self, results: Iterable[Graded | Faulted]) -> Iterator[Line]:
        for attack, result in zip(self.attacks.values(), results, strict=True):
            problem = attack.find_breach(result)
            verdict = "fault        "
            if isinstance(result, Graded):
                verdict = f"{result.stage:8} {result.reward:.2f}"
            text = f"{verdict}  {attack.name:32} must not {attack.must_not}"
            if problem:
                yield Line("THROUGH", text, f"got {problem}")
            else:
                yield Line("held", text, None)


def fill_placeholders(source: str, things: Mapping[str, object] | None = None) -> str:
    """Return `source` with values in place of its placeholders; by default values of nothing on
    this host."""
    usual: Mapping[str, object] = {
        "CANARY": "/nowhere",
        "PORT": 9,
        "PID": os.getpid(),
        "MARKER": "marker",
    }
    for name, value in (things or usual).items():
        source = source.replace(f"@{name}@", str(value))
    return _TIMES.sub(
        lambda match: "".join(match[2].replace("#", str(n)) for n in range(int(match[1]))), source
    )
