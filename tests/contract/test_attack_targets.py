"""`gradus attack --target`: reward functions of others, called in boxes with attacks and honest
controls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gradus.contract import Faulted
from gradus.errors import Fault, Misuse
from services.attacks import load_corpus
from services.attacks.code import CodeCorpus
from services.attacks.export import ROWS
from services.attacks.target import Shape, Target, Word, attack_target
from services.worker import grade_with_retries
from tests.conftest import Cli

CORPUS = """
task: {cases: [{stdin: "5", stdout: "10"}, {stdin: "424242", stdout: "848484"}]}
prompt: Double a number.
right: print(2 * int(input()))
wrong: print(0)
tests: 2
unearned: 0.1
fields: {language: text}
honest:
- {name: right_in_c, language: c, completion: "int main(void) { return 0; }"}
attacks:
- {name: exits, must not: pass by its status, completion: "import os; os._exit(0)"}
- {name: shows_all, must not: pass by several answers, completion: "print(10, 848484)"}
- {name: hits_one, must not: earn more, completion: "print(10)", earned: 1}
- {name: reports, must not: write its own reward, completion: "import os\\nfor fd in range(3, 200):\\n    try: os.write(fd, b'{\\"reward\\": 1}')\\n    except OSError: pass"}
- {name: sleeps, must not: hang, completion: "import time; time.sleep(60)"}
- {name: in_c, must not: pass, language: c, completion: "int main(void) { return 0; }"}
"""  # noqa: E501
FUNCTIONS = """
import contextlib, io, json, re, subprocess, sys

def code(text):
    return re.findall(r"```python\\n(.*?)```", text, re.DOTALL)[-1:]

def run(source, given):
    try:
        done = subprocess.run([sys.executable, "-c", source], input=given, capture_output=True, text=True, timeout=3)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout

def share(text, cases):
    found = code(text)
    return sum(wanted in run(found[0], given).split() for given, wanted in cases) / len(cases) if found else 0.0

def by_process(completions, verification_info, **columns):
    cases = [(case["input"], case["output"]) for case in verification_info[0]["test_cases"]]
    return [share(text, cases) for text in completions]

async def by_message(completions, verification_info, **columns):
    return by_process([completion[-1]["content"] for completion in completions], verification_info)

def compute_score(data_source, solution_str, ground_truth, extra_info):
    assert data_source == "codecontests" and extra_info["cases"]
    tests = json.loads(ground_truth)
    return {"score": share(solution_str, list(zip(tests["inputs"], tests["outputs"])))}

class Server:
    @staticmethod
    def verify(body):
        tests = body["verifier_metadata"]["unit_tests"]
        text = body["response"]["output"][0]["content"][0]["text"]
        return {"reward": share(text, list(zip(tests["inputs"], tests["outputs"])))}

def in_process(completions, ground_truth, **columns):
    tests = json.loads(ground_truth[0])
    passed = 0
    for given, wanted in zip(tests["inputs"], tests["outputs"]):
        out, sys.stdin = io.StringIO(), io.StringIO(given)
        with contextlib.redirect_stdout(out):
            exec((code(completions[0]) or [""])[0], {})
        passed += out.getvalue().strip() == wanted
    return [passed / 2]

def none(completions, **columns):
    return [None]
"""  # noqa: E501


@pytest.fixture
def corpus(tmp_path: Path) -> CodeCorpus:
    (tmp_path / "corpus.yaml").write_text(CORPUS)
    return CodeCorpus.read("program", tmp_path)


@pytest.fixture
def open_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Target]:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    (folder / "their_rewards.py").write_text(FUNCTIONS)
    monkeypatch.chdir(folder)

    def create(function: str, shape: Shape = Shape.TRL, timeout_s: float = 20) -> Target:
        name = f"their_rewards:{function}"
        try:
            return Target(name, shape, timeout_s=timeout_s, memory_mb=1024, binds=())
        except Fault as fault:
            pytest.skip(f"there are no boxes here: {fault.message}")

    return create


def find_words(target: Target, corpus: CodeCorpus, *without: str) -> dict[str, Word]:
    trials = [trial for trial in corpus.build_trials() if trial.name not in without]
    judgements = attack_target(target, "program", trials, 4)
    return {judgement.trial.name: judgement.word for judgement in judgements}


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        ("by_process", Shape.TRL),
        ("by_message", Shape.OPEN_R1),
        ("compute_score", Shape.VERL),
        ("Server.verify", Shape.NEMO_GYM),
    ],
)
def test_each_shape_is_called_as_its_trainer_does(
    corpus: CodeCorpus, open_target: Callable[..., Target], function: str, shape: Shape
) -> None:
    assert find_words(open_target(function, shape), corpus, "sleeps", "reports") == {
        "right": Word.ACCEPTED,
        "right_after_a_thought": Word.ACCEPTED,
        "right_between_words": Word.ACCEPTED,
        "right_in_c": Word.SKIPPED,
        "wrong": Word.HELD,
        "exits": Word.HELD,
        "shows_all": Word.CREDITED,
        "hits_one": Word.HELD,
        "in_c": Word.SKIPPED,
    }


def test_a_function_that_an_answer_ends_gives_no_reward(
    corpus: CodeCorpus, open_target: Callable[..., Target]
) -> None:
    words = find_words(open_target("in_process", timeout_s=3), corpus)
    assert words["right"] == Word.ACCEPTED
    assert words["exits"] == Word.BROKE
    assert words["sleeps"] == Word.BROKE
    assert words["reports"] == Word.BROKE


def test_a_function_that_refuses_all_honest_answers_is_a_mistake_in_the_call(
    corpus: CodeCorpus, open_target: Callable[..., Target]
) -> None:
    with pytest.raises(Misuse, match="no honest answer more than a wrong one: ValueError: no rew"):
        find_words(open_target("none"), corpus)
    with pytest.raises(Misuse, match="AttributeError: .*has no attribute 'gone'"):
        find_words(open_target("gone"), corpus)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--target", "by_process"], "write it as MODULE:FUNCTION"),
        (["--target", "there_is_none:f"], "there is no module 'there_is_none'"),
        (["--target", "json:loads", "--shape", "x"], "--shape x: use trl, open-r1"),
    ],
)
def test_a_target_that_cannot_be_called_is_one_line(
    gradus: Cli, words: list[str], problem: str
) -> None:
    refused = gradus("attack", "program", *words)
    assert (refused.status, refused.out) == (2, "")
    assert problem in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize("grader", ["ocaml", "rust", "story", "program"])
def test_the_corpus_is_a_data_set_with_licence_version_and_digest(
    gradus: Cli, tmp_path: Path, grader: str
) -> None:
    folder = tmp_path / "set"
    exported = gradus("attack", grader, "--export", str(folder))
    assert exported.status == 0, exported.err
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    kinds = {row["kind"] for row in rows}
    assert kinds == {"honest", "wrong", "attack"}
    assert len({row["id"] for row in rows}) == len(rows) == len(load_corpus(grader).build_trials())
    card = (folder / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert exported.out.strip().rpartition(":")[2] in card
    assert gradus("attack", grader, "--export", str(folder)).status == 2


@pytest.mark.parametrize("grader", ["ocaml", "rust", "program"])
def test_honest_controls_are_honest_and_wrong_ones_are_wrong(
    request: pytest.FixtureRequest, grader: str
) -> None:
    """By our own graders, languages that are not installed left out."""
    own = request.getfixturevalue(f"{grader}_grader")
    corpus = load_corpus(grader)
    assert isinstance(corpus, CodeCorpus)
    rubric = own.info().rubrics[0]
    for trial in corpus.build_trials():
        if trial.kind == "attack":
            continue
        submission = corpus.honest.build_submission(trial.completion, **trial.task)
        result = grade_with_retries(own, submission, rubric, 0, brief=False)
        assert result is not None
        if isinstance(result, Faulted):
            assert "is not installed" in result.fault.message
            continue
        assert result.passed == (trial.kind == "honest"), (trial.name, result)
        if trial.kind == "wrong":
            assert result.tests is not None
            assert result.tests.passed == 0
