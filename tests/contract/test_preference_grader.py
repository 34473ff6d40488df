"""The preference grader on a tiny reward model: the trainer's own scores, however it is asked,
whatever is written."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gradus.contract import Graded, OcamlSubmission, PreferenceSubmission, Stage, compute_job_id
from gradus.errors import InternalFault, Misuse
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker import Broker
from services.broker.memory import MemoryBroker
from services.broker.streams import StreamsBroker
from services.doctor import check_grader
from services.graders.base import find_installed_graders
from services.graders.preference.config import load_config
from services.graders.preference.grader import PreferenceGrader
from services.worker import Worker, grade_with_retries
from tests.conftest import Cli
from tests.tiny_models import make_model, reward_model_scores

pytestmark = pytest.mark.training

SIGMOID = "preference/sigmoid@1"
SOON_S = 60.0
GRADE = "/v1/grade/preference"
PROMPTS = [
    "Name a colour. ",
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A colour?"}],
]
HOSTILE = yaml.safe_load((Path(__file__).parents[1] / "cases/preference/hostile.yaml").read_text())
COMPLETIONS = [
    "Blue.",
    "let f x = x + 1",
    "",
    "é😀",
    "red " * 100,
    *(case["completion"] for case in HOSTILE),
]


def asked(prompt: Any, completion: str, submission_id: str = "one") -> dict[str, Any]:
    where = (
        {"prompt": prompt, "task": {}}
        if isinstance(prompt, str)
        else {"task": {"messages": prompt}}
    )
    return {"id": submission_id, "completion": completion, **where}


def submission(prompt: Any, completion: str) -> PreferenceSubmission:
    return PreferenceSubmission.model_validate(asked(prompt, completion))


@pytest.fixture
def in_process(reward_model: Path) -> Any:
    """The same model, asked without the grader."""
    return partial(reward_model_scores, reward_model)


def trainers_scores(in_process: Any, prompt: Any, completions: list[str]) -> list[float]:
    given = (
        completions
        if isinstance(prompt, str)
        else [[{"role": "assistant", "content": one}] for one in completions]
    )
    scores: list[float] = in_process([prompt] * len(completions), given)
    return scores


# ---------------------------------------------------------------------- over the queue


@pytest.fixture(autouse=True)
def _stop_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "services.worker.CLAIM_WAIT_S", 0.1
    )  # an idle worker ends when its claim runs out


@pytest.fixture
async def broker(redis_url: str) -> AsyncIterator[Broker]:
    made = StreamsBroker(redis_url, prefix=f"preference-{uuid.uuid4().hex}:")
    yield made
    await made.close()


@asynccontextmanager
async def served(grader: PreferenceGrader, broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    """The API and a worker with that grader."""
    stop = asyncio.Event()
    app = create_app(broker, ApiSettings(registry_ttl_s=0.0))
    working = asyncio.create_task(Worker(grader, broker, slots=8).run(stop))
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://test", timeout=60
        ) as client:
            while not (await client.get("/v1/graders")).json()["graders"]:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
            yield client
            await app.state.api.jobs.close()
    finally:
        stop.set()
        await working


async def test_scores_over_the_queue_are_those_of_the_trainers_own_process(
    preference_grader: PreferenceGrader, in_process: Any, broker: Broker
) -> None:
    pairs = [(prompt, text) for prompt in PROMPTS for text in COMPLETIONS]
    body = {
        "submissions": [asked(*pair, f"s{number}") for number, pair in enumerate(pairs)],
        "deadline_s": 60,
    }
    scores = [
        score for prompt in PROMPTS for score in trainers_scores(in_process, prompt, COMPLETIONS)
    ]
    async with served(preference_grader, broker) as client:
        results, again = [(await client.post(GRADE, json=body)).json()["results"] for _ in range(2)]
    assert [result["id"] for result in results] == [one["id"] for one in body["submissions"]]
    assert [result["components"]["score"] for result in results] == pytest.approx(scores, abs=1e-5)
    for result, score in zip(results, scores, strict=True):
        assert result["reward"] == pytest.approx(1 / (1 + math.exp(-score)), abs=1e-5)
        assert result["reward"] == pytest.approx(sum(result["components"].values()), abs=1e-6)
        assert (result["passed"], result["stage"], result["tests"]) == (False, "score", None)
    assert all(result["cached"] for result in again)
    assert [result["reward"] for result in again] == [result["reward"] for result in results]


async def test_streams_and_jobs_serve_it_too(preference_grader: PreferenceGrader) -> None:
    body = {"submissions": [asked("a", "b")], "deadline_s": 60}
    async with served(preference_grader, MemoryBroker()) as client:
        [line] = [
            line
            for line in (await client.post(f"{GRADE}/stream", json=body)).text.splitlines()
            if line
        ]
        accepted = (await client.post("/v1/jobs/preference", json=body)).json()
        while (job := (await client.get(f"/v1/jobs/{accepted['id']}")).json())["status"] != "done":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        metrics = (await client.get("/metrics")).text
    assert json.loads(line)["reward"] == job["results"][0]["reward"]
    assert 'gradus_api_results_total{grader="preference",status="graded"} 2.0' in metrics
    assert 'gradus_api_verdicts_total{grader="preference",stage="score"} 2.0' in metrics


MISUSE: dict[str, tuple[int, dict[str, Any], str]] = {
    "another grader's task": (422, {"task": {"tests": "assert true"}}, "Extra inputs"),
    "a role that is none": (
        422,
        {"task": {"messages": [{"role": "user<|im_end|>", "content": "b"}]}},
        "role",
    ),
    "a role that is text": (422, {"task": {"messages": [{"role": "", "content": "b"}]}}, "role"),
    "a message without content": (422, {"task": {"messages": [{"role": "user"}]}}, "content"),
    "content that is no text": (
        422,
        {"task": {"messages": [{"role": "user", "content": [{}]}]}},
        "content",
    ),
    "messages that are none": (422, {"task": {"messages": "hello"}}, "messages"),
    "NUL in a message": (422, {"task": {"messages": [{"role": "user", "content": "\0"}]}}, "NUL"),
    "a conversation without end": (
        413,
        {"task": {"messages": [{"role": "user", "content": "b"}] * 1001}},
        "at most",
    ),
}


@pytest.mark.parametrize(("status", "changes", "said"), MISUSE.values(), ids=MISUSE)
async def test_misuse_is_told_and_nothing_of_it_is_scored(
    status: int, changes: dict[str, Any], said: str
) -> None:
    broker = MemoryBroker()
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(broker, ApiSettings())), base_url="http://test"
    ) as client:
        body = json.dumps({"submissions": [{"id": "a", "completion": "b", "task": {}} | changes]})
        answer = await client.post(
            GRADE, content=body, headers={"content-type": "application/json"}
        )
        again = await client.post(GRADE, json={"submissions": [asked("a", "b"), asked("a", "c")]})
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert said in answer.text
    assert (again.status_code, "occurs twice" in again.text) == (422, True)
    assert await broker.depth("preference") == 0


def test_only_for_this_grader_the_prompt_is_part_of_what_is_asked() -> None:
    task = {"tests": "let () = assert (f 1 = 2)"}
    ocaml = [
        OcamlSubmission.model_validate({"id": "a", "completion": "b", "prompt": one, "task": task})
        for one in "xy"
    ]
    chats = [[{"role": role, "content": "x"}] for role in ("user", "system")]
    ours = [submission(prompt, "b") for prompt in ("x", "y", "", *chats)]
    assert len({compute_job_id("ocaml@1", "ocaml/graduated@1", one) for one in ocaml}) == 1
    assert len({compute_job_id("preference@1", SIGMOID, one) for one in ours}) == 5


# ---------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case["name"])
def test_whatever_is_written_gets_a_score_and_its_flags(
    case: dict[str, Any], preference_grader: PreferenceGrader
) -> None:
    for kind, prompt in zip(("plain", "chat"), PROMPTS, strict=True):
        result = preference_grader.grade(submission(prompt, case["completion"]), SIGMOID, 0)
        assert result.stage is Stage.SCORE
        assert result.flags == (("preference:control_tokens",) if kind in case["flags"] else ())


def test_of_a_huge_text_the_end_is_scored_and_it_is_told(
    preference_grader: PreferenceGrader,
) -> None:
    huge = preference_grader.grade(submission("a", "x y " * 249_000 + "good"), SIGMOID, 0)
    short, other = (
        preference_grader.grade(submission("a", "x y " * 1_500 + end), SIGMOID, 0)
        for end in ("good", "bad.")
    )
    assert [result.flags for result in (huge, short, other)] == [("preference:cut",)] * 3
    assert huge.reward == short.reward != other.reward


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_no_number_is_a_fault_and_no_zero(
    preference_grader: PreferenceGrader, broken: float
) -> None:
    preference_grader.model.model.score.weight.data.fill_(broken)  # type: ignore[attr-defined]
    result = grade_with_retries(preference_grader, submission("a", "b"), SIGMOID, 0, brief=False)
    assert (result.status, result.id) == ("faulted", "one")
    assert result.fault.message.startswith("the reward model scores ")
    assert not result.fault.retryable


def test_another_graders_submission_is_a_fault(preference_grader: PreferenceGrader) -> None:
    other = OcamlSubmission.model_validate({"id": "a", "completion": "b", "task": {"tests": "x"}})
    with pytest.raises(InternalFault, match="was given a OcamlSubmission"):
        preference_grader.grade(other, SIGMOID, 0)


# ------------------------------------------------------------------------------------------- proof


def test_a_fit_model_is_proved(preference_grader: PreferenceGrader) -> None:
    preference_grader.self_test()
    info = preference_grader.info()
    assert (info.sandbox, info.rubrics) == ("none", (SIGMOID,))
    assert info.toolchain.startswith("judge ")
    assert info.toolchain.endswith(" in float32-cpu")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "gives every text the same score"),
        (float("nan"), "it scores nan: its weights are broken"),
    ],
)
def test_a_model_whose_head_is_broken_is_not_served(
    preference_grader: PreferenceGrader, value: float, said: str
) -> None:
    preference_grader.model.model.score.weight.data.fill_(value)  # type: ignore[attr-defined]
    with pytest.raises(InternalFault, match=said):
        preference_grader.self_test()


def test_a_model_that_reads_its_padding_is_not_served(preference_grader: PreferenceGrader) -> None:
    preference_grader.model.model.config.pad_token_id = 5  # type: ignore[attr-defined]
    with pytest.raises(
        InternalFault,
        match=r"a score changes by .* with what is scored beside it: it reads its padding",
    ):
        preference_grader.self_test()


def test_a_chat_whose_template_lets_turns_be_forged_is_not_served(
    preference_grader: PreferenceGrader,
) -> None:
    preference_grader.model.reader._control = frozenset()  # type: ignore[attr-defined]
    with pytest.raises(InternalFault, match="a completion can write the tokens that end its turn"):
        preference_grader.self_test()


def test_a_model_without_a_head_is_misuse_that_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GRADUS_PREFERENCE_MODEL", str(make_model("qwen3", tmp_path / "policy")))
    with pytest.raises(Misuse, match=r"policy: has no trained head.*gradus train reward"):
        PreferenceGrader()


# ---------------------------------------------------------------------- settings, revision


def test_the_environment_goes_before_the_file() -> None:
    told = {"MODEL": "1e5", "DEVICE": "cpu", "MAX_TOKENS": "512", "CENTRE": "-1.5", "SCALE": "2"}
    found = load_config(environ={f"GRADUS_PREFERENCE_{name}": text for name, text in told.items()})
    assert (found.model, found.device, found.max_tokens, found.centre, found.scale) == (
        "1e5",
        "cpu",
        512,
        -1.5,
        2.0,
    )
    assert load_config(environ={"GRADUS_PREFERENCE_MODEL": ""}).model is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("MODLE", "x", "GRADUS_PREFERENCE_MODLE: modle: Extra inputs are not permitted"),
        ("SCALE", "0", "GRADUS_PREFERENCE_SCALE: scale: Input should be greater than 0"),
        ("SCALE", "nan", "scale: "),
        ("CENTRE", "inf", "centre: Input should be a finite number"),
        ("DEVICE", "tpu", "device: "),
        ("THREADS", "[1", "threads: "),
        ("BATCH_TOKENS", "-1", "batch_tokens: "),
        ("MAX_TOKENS", "many", "max_tokens: "),
    ],
)
def test_a_setting_that_is_wrong_is_named(name: str, text: str, said: str) -> None:
    with pytest.raises(Misuse, match=said):
        load_config(environ={f"GRADUS_PREFERENCE_{name}": text})


def test_an_unknown_key_of_the_file_is_named_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"rubric: {SIGMOID}\nmodle: x\n")
    with pytest.raises(Misuse, match=r"p.yaml: modle: Extra inputs are not permitted"):
        load_config(tmp_path / "p.yaml", environ={})


def test_a_device_that_is_not_there_is_misuse(
    reward_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADUS_PREFERENCE_MODEL", str(reward_model))
    monkeypatch.setenv("GRADUS_PREFERENCE_DEVICE", "mps")
    with pytest.raises(Misuse, match="device: this machine, or this build of torch, has no mps"):
        PreferenceGrader()


def test_the_revision_is_of_weights_tokenizer_precision_and_what_makes_a_reward(
    reward_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def revision(model: Path, **told: str) -> str:
        with monkeypatch.context() as patch:
            patch.setenv("GRADUS_PREFERENCE_MODEL", str(model))
            patch.setenv("GRADUS_PREFERENCE_DEVICE", "cpu")
            for name, text in told.items():
                patch.setenv(f"GRADUS_PREFERENCE_{name.upper()}", text)
            grader = PreferenceGrader()
            grader.scorer.close()
            return grader.info().revision

    moved = shutil.copytree(reward_model, tmp_path / "elsewhere")
    first = revision(reward_model)
    assert revision(moved) == first == revision(reward_model, threads="2", batch_tokens="64")
    (moved / "trainer_state.json").write_text("{}")
    assert revision(moved) == first
    (moved / "chat_template.jinja").write_text((moved / "chat_template.jinja").read_text() + " ")
    others = {
        revision(moved),
        revision(reward_model, dtype="bfloat16"),
        revision(reward_model, scale="2"),
    }
    others |= {revision(reward_model, centre="1"), revision(reward_model, max_tokens="100")}
    from safetensors.torch import load_file, save_file

    other = shutil.copytree(reward_model, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    weights["score.weight"][0, 0] += 1e-3
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    assert len({first, revision(other), *others}) == 7


def test_centre_and_scale_move_the_reward_and_leave_the_score(
    reward_model: Path, preference_grader: PreferenceGrader, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = preference_grader.grade(submission("a", "b"), SIGMOID, 0)
    score = plain.components["score"]
    monkeypatch.setenv("GRADUS_PREFERENCE_CENTRE", str(score))
    monkeypatch.setenv("GRADUS_PREFERENCE_SCALE", "0.5")
    moved = PreferenceGrader()
    result = moved.grade(submission("a", "b"), SIGMOID, 0)
    moved.scorer.close()
    assert result.components["score"] == score
    assert result.reward == pytest.approx(0.5, abs=1e-5)


# ---------------------------------------------------------------------------------------- batching


def test_many_threads_get_their_own_scores(
    preference_grader: PreferenceGrader, in_process: Any
) -> None:
    texts = [f"{'word ' * (number % 37)}{number}" for number in range(200)]
    with ThreadPoolExecutor(32) as pool:
        results = list(
            pool.map(lambda text: preference_grader.grade(submission("a", text), SIGMOID, 0), texts)
        )
    expected = trainers_scores(in_process, "a", texts)
    assert [result.components["score"] for result in results] == pytest.approx(expected, abs=1e-5)
    assert all(result.cpu_ms > 0 for result in results)


# ---------------------------------------------------------------------- the command line


def test_a_file_is_graded_without_a_server(
    gradus: Cli,
    reward_model: Path,
    in_process: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "s.jsonl").write_text(
        "".join(json.dumps(asked(p, "Blue.", str(n))) + "\n" for n, p in enumerate(PROMPTS))
    )
    monkeypatch.setenv("GRADUS_PREFERENCE_DEVICE", "cpu")
    monkeypatch.setenv("GRADUS_PREFERENCE_MODEL", str(reward_model))
    said = gradus("grade", "preference", tmp_path / "s.jsonl")
    assert said.status == 0, said.err
    results = [Graded.model_validate_json(line) for line in said.out.splitlines()]
    expected = [trainers_scores(in_process, prompt, ["Blue."])[0] for prompt in PROMPTS]
    assert [result.components["score"] for result in results] == pytest.approx(expected, abs=1e-5)
    [sign] = check_grader(find_installed_graders()["preference"])
    assert sign.fine
    assert sign.text.startswith(results[0].toolchain)


def test_without_a_model_nothing_is_graded_and_it_is_said_why(
    gradus: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRADUS_PREFERENCE_MODEL", raising=False)
    (tmp_path / "s.jsonl").write_text(json.dumps(asked("a", "b")) + "\n")
    for argv in (
        ("grade", "preference", str(tmp_path / "s.jsonl")),
        ("serve", "--graders", "preference"),
    ):
        said = gradus(*argv)
        assert (said.status, said.out) == (3, "")
        assert "no reward model is named: set GRADUS_PREFERENCE_MODEL" in said.err
        assert "Traceback" not in said.err


def test_commands_that_need_tasks_or_a_corpus_say_that_there_are_none(
    gradus: Cli, tmp_path: Path
) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"id": "a", "prompt": "b"}) + "\n")
    checked = gradus("tasks", "validate", tmp_path / "t.jsonl", "--grader", "preference")
    attacked = gradus("attack", "preference")
    assert (checked.status, attacked.status) == (2, 2)
    assert "a reward model needs no tasks" in checked.err
    assert "there is no corpus of attacks on the grader" in attacked.err
