"""Whole training runs of a tiny model on the CPU: what they leave, and what kills, signals and
outages do to them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import Faulted, Graded, Stage, build_faulted
from gradus.errors import FaultKind, Misuse
from gradus.resources import configs
from services.broker.jobs import JobPayload
from tests.fake_grader import EchoWorker, Service
from tests.held_out_in_processes import loaded, texts_of
from trainer.config.run import ModelConfig
from trainer.config.stages import load_stage

pytestmark = pytest.mark.training
ROOT = Path(__file__).parents[2]

TASKS = [
    {
        "id": f"t{n}",
        "prompt": f"(* add {n} *)",
        "tests": f"let () = assert (f 1 = {n + 1})",
        "kind": "add",
    }
    for n in range(8)
]
CONFIG = """
model: {{name: {model}, cpu_threads: 1}}
data: {{dataset: {tasks}}}
reward: {{grader: ocaml, urls: {url}, deadline_s: 20}}
grpo: {{max_steps: 7, save_steps: 2, num_generations: 4, per_device_train_batch_size: 8, max_completion_length: 6,
       learning_rate: 1e-2, lr_scheduler_type: constant}}
output_dir: {output_dir}
"""  # noqa: E501


class LengthWorker(EchoWorker):
    """Rewards grow with the completion, so that groups differ, advantages are not zero, and weights
    move."""

    def _result(self, payload: JobPayload, completion: str) -> Graded | Faulted:
        reward = len(completion.encode()) % 5 / 4
        return Graded(
            id=payload.submission.id,
            reward=reward,
            passed=reward == 1,
            stage=Stage.TESTS,
            components={"tests": reward},
            rubric=payload.rubric,
            grader=self.info.grader,
            toolchain=self.info.toolchain,
            cpu_ms=1.0,
            wall_ms=1.0,
        )


class BareWorker(LengthWorker):
    """Has no packages, so a task that names one is a fault that another try does not cure."""

    def _result(self, payload: JobPayload, completion: str) -> Graded | Faulted:
        if payload.submission.task.get("packages"):
            return build_faulted(
                payload.submission.id,
                FaultKind.INTERNAL,
                "there is no such package here",
                retryable=False,
            )
        return super()._result(payload, completion)


@contextmanager
def service(worker: type[EchoWorker]) -> Iterator[str]:
    """The URL of a real API with such a worker, which is announced for ten minutes."""
    with Service().running() as running:
        running.worker.__class__ = worker
        yield running.url


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Qwen2's architecture with a chat template, three orders of magnitude smaller, saved as a hub
    model is."""
    from trainer.config.run import FreshModel
    from trainer.models.fresh import make_fresh_model

    folder = tmp_path_factory.mktemp("models") / "qwen2"
    sizes = FreshModel(
        hidden_size=32, intermediate_size=64, layers=1, heads=2, kv_heads=1, vocab_size=300
    )
    make_fresh_model("qwen3", sizes, ["let f x = x + 1", "(* add 1 *)"], folder, seed=1)
    return folder


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    path.write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    return path


@pytest.fixture
def url() -> Iterator[str]:
    with service(LengthWorker) as url:
        yield url


@pytest.fixture
def config(tmp_path: Path, model: Path, tasks: Path, url: str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(CONFIG.format(model=model, tasks=tasks, url=url, output_dir=tmp_path / "run"))
    return path


def train(config: Path, *overrides: str, resume: str = "auto") -> int:
    from trainer.train import main

    return main(config, overrides, resume=resume)


def start(config: Path, *overrides: str) -> subprocess.Popen[bytes]:
    """The same in a process of its own, to be killed."""
    command = [
        sys.executable,
        "-c",
        "from gradus.cli import main; main()",
        "train",
        str(config),
        *overrides,
    ]
    return subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


@contextmanager
def once(condition: Callable[[], bool], act: Callable[[], object]) -> Iterator[None]:
    """Calls `act` in another thread, once, as soon as the condition holds; never after the block
    has ended."""
    over = threading.Event()

    def watch() -> None:
        while not condition():
            if over.wait(0.02):
                return
        act()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


COMPARED = (
    "step",
    "loss",
    "grad_norm",
    "learning_rate",
    "reward",
    "entropy",
    "completions/mean_length",
    "num_tokens",
)


def curve(run: Path) -> list[Any]:
    """What is compared of each step; one that learns from completions of an earlier step has no
    reward of its own."""
    compared = []
    for line in lines(run / "metrics.jsonl"):
        compared.append({name: line[name] for name in COMPARED if name in line})
    return compared


def groups_of(samples: list[dict[str, Any]], size: int) -> list[list[dict[str, Any]]]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


# ------------------------------------------------------------------------------------------- tests


def test_a_killed_run_goes_on_as_if_it_had_never_stopped(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    reference = tmp_path / "reference"
    # The process has far more steps to do than it ever will, so that the kill never comes after its
    # end.
    process = start(config, "--max_steps", "100000")
    wait_for(
        lambda: len(lines(run / "metrics.jsonl")) >= 5 and (run / "checkpoint-4").exists(), process
    )
    process.kill()
    process.communicate()
    for later in {*run.glob("checkpoint-*")} - {run / "checkpoint-2", run / "checkpoint-4"}:
        shutil.rmtree(later)
    # As if it had been killed while writing the next one.
    shutil.copytree(
        run / "checkpoint-4",
        run / "checkpoint-6",
        ignore=shutil.ignore_patterns("trainer_state.json"),
    )

    assert train(config) == 0
    assert (
        "skipping checkpoint-6: trainer_state.json is missing" in (run / "training.log").read_text()
    )
    assert [line["step"] for line in lines(run / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6, 7]
    assert [line["step"] for line in lines(run / "completions.jsonl")] == [
        n for n in range(1, 8) for _ in range(8)
    ]
    for group in groups_of(lines(run / "completions.jsonl"), size=4):
        # TRL scales by the group's own spread: what is left is the order, and a sum of zero.
        assert sum(one["advantage"] for one in group) == pytest.approx(0, abs=1e-4)
        mean = sum(one["reward"] for one in group) / 4
        assert [one["advantage"] > 0 for one in group] == [one["reward"] > mean for one in group]

    # Once it is done, starting it again does no step more; with more steps it goes on, in the
    # middle of a pass.
    assert train(config) == 0
    assert len(lines(run / "metrics.jsonl")) == 7
    assert train(config, "--max_steps", "8") == 0
    assert train(config, "--max_steps", "8", "--output_dir", str(reference)) == 0
    assert curve(run) == [pytest.approx(step, rel=1e-5) for step in curve(reference)]
    assert [line["completion"] for line in lines(run / "completions.jsonl")] == [
        line["completion"] for line in lines(reference / "completions.jsonl")
    ]

    assert train(config, "--max_steps", "1", resume="never") == 0
    assert [line["step"] for line in lines(run / "metrics.jsonl")] == [1]
    # `previous-1` has the model that the run had ended with before it went on.
    assert (run / "previous-1" / "final").is_dir()
    assert len(lines(run / "previous-2" / "metrics.jsonl")) == 8


def test_a_run_stopped_within_a_round_of_several_updates_is_the_same_run(
    config: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    reference = tmp_path / "reference"
    rounds = ("--num_iterations", "2", "--save_steps", "3", "--max_steps", "6")
    assert train(config, *rounds, "--output_dir", str(reference)) == 0
    assert {path.name for path in reference.glob("checkpoint-*")} == {
        "checkpoint-4",
        "checkpoint-6",
    }

    with once(
        lambda: len(lines(run / "metrics.jsonl")) == 3, lambda: os.kill(os.getpid(), signal.SIGTERM)
    ):
        assert train(config, *rounds) in {0, 128 + signal.SIGTERM}
    shutil.rmtree(run / "checkpoint-6", ignore_errors=True)
    shutil.rmtree(run / "final", ignore_errors=True)
    assert train(config, *rounds) == 0
    assert curve(run) == [pytest.approx(step, rel=1e-5) for step in curve(reference)]
    assert [line["completion"] for line in lines(run / "completions.jsonl")] == [
        line["completion"] for line in lines(reference / "completions.jsonl")
    ]


def test_dropout_is_off_while_rewards_train(config: Path) -> None:
    import torch
    from trl import GRPOTrainer

    seen: list[float] = []
    loss = GRPOTrainer.compute_loss

    def recorded(self: Any, model: Any, *arguments: Any, **named: Any) -> Any:
        seen.extend(module.p for module in model.modules() if isinstance(module, torch.nn.Dropout))
        return loss(self, model, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GRPOTrainer, "compute_loss", recorded)
        assert train(config, "--max_steps", "1", "--lora.r", "4", "--lora.dropout", "0.5") == 0
    assert seen
    assert set(seen) == {0}


def test_sigterm_finishes_the_step_and_saves_it(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with once(
        lambda: len(lines(run / "metrics.jsonl")) >= 2, lambda: os.kill(os.getpid(), signal.SIGTERM)
    ):
        assert (
            train(config, "--max_steps", "100000", "--save_steps", "100000") == 128 + signal.SIGTERM
        )
    step = len(lines(run / "metrics.jsonl"))
    assert (run / f"checkpoint-{step}" / "trainer_state.json").exists()
    assert f"resume from checkpoint-{step}" in (run / "training.log").read_text()


def test_a_run_without_a_service_ends_at_once_and_says_what_to_start(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        train(config, "--reward.urls", "http://127.0.0.1:1", "--reward.ready_timeout_s", "0") == 3
    )
    said = capfd.readouterr().err
    assert all(
        part in said
        for part in ("http://127.0.0.1:1", "gradus serve", "gradus worker ocaml --redis")
    )
    assert not (tmp_path / "run" / "completions.jsonl").exists()
    assert not (tmp_path / "run" / "final").exists()


def test_a_service_that_goes_away_leaves_a_checkpoint_of_the_last_whole_step_and_no_zeros(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    long = ("--max_steps", "100000", "--save_steps", "100000", "--max_completion_length", "20")
    with (
        ExitStack() as stack,
        once(lambda: len(lines(run / "metrics.jsonl")) >= 3, stack.close),
    ):
        url = stack.enter_context(service(LengthWorker))
        assert train(config, *long, "--reward.urls", url, "--reward.deadline_s", "2") == 3
    step = len(lines(run / "metrics.jsonl"))
    said = capfd.readouterr().err
    assert all(
        part in said
        for part in ("none of 8 samples", url, "gradus serve", f"resume from checkpoint-{step}")
    )
    assert (run / f"checkpoint-{step}" / "trainer_state.json").exists()
    ungraded = [sample for sample in lines(run / "completions.jsonl") if sample["step"] > step]
    assert [sample["reward"] for sample in ungraded] == [None] * 8
    assert all(sample["fault"]["kind"] == "queue" for sample in ungraded)

    assert train(config, "--max_steps", str(step + 1), *long[2:]) == 0
    assert [line["step"] for line in lines(run / "metrics.jsonl")] == list(range(1, step + 2))
    assert any(line["gradus/early"] > 0 for line in lines(run / "metrics.jsonl"))
    samples = lines(run / "completions.jsonl")
    assert all(
        (sample["status"] == "graded") is (sample["reward"] is not None) for sample in samples
    )
    # The service may have gone away in the middle of the grading of the last whole step.
    assert {sample["step"] for sample in samples if sample["status"] != "graded"} <= {step}


def test_two_processes_share_held_out_completions_and_write_those_of_one(model: Path) -> None:
    alone = loaded(model)
    texts = asyncio.run(texts_of(alone))
    assert (alone.count, len({text for *_, text in texts}) > 3) == (21, True)
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    done = subprocess.run(
        [*launch, "-m", "tests.held_out_in_processes", str(model)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    shares = [json.loads(line) for line in done.stdout.splitlines()]
    # Batches of 3, 3, 3, 3, 2 sampled and 3, 3, 1 greedy ones: every second of them.
    assert sorted(count for count, _ in shares) == [10, 11]
    assert all(found == texts for _, found in shares)


def test_the_qwen_config_trains_an_adapter_on_chat_prompts(
    tmp_path: Path, model: Path, tasks: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "qwen"
    small = [
        "--model.name",
        str(model),
        "--data.dataset",
        str(tasks),
        "--reward.urls",
        url,
        "--output_dir",
        str(run),
    ]
    small += ["--max_steps", "1", "--max_completion_length", "6", "--evaluation.samples", "1"]
    assert train(configs() / "train" / "ocaml_qwen_1.5b.yaml", *small) == 0
    assert "adamw_torch is used instead" in capfd.readouterr().err
    adapter = json.loads((run / "final" / "adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"]) == (64, 128)
    sample = lines(run / "completions.jsonl")[0]
    assert [message["role"] for message in sample["prompt"]] == ["system", "user"]
    assert sample["reward"] is not None
    assert {path.name for path in (run / "eval").glob("*.json")} == {"before.json", "after.json"}
    assert json.loads((run / "comparison.json").read_text())["comparisons"]
    assert load_stage(run / "config.resolved.json").grpo["beta"] == 0.01

    from trainer.evaluate.local import draw
    from trainer.models.loading import load_trained

    trained, tokenizer = load_trained(run / "final", ModelConfig(name="x"), "float32")
    assert len(draw(trained, tokenizer, ["let f", "let"], 1.0, 4)) == 2


def test_a_warm_start_from_nothing_then_grpo(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fresh = [
        "--model.name",
        "fresh:qwen3",
        "--model.fresh.hidden_size",
        "32",
        "--model.fresh.layers",
        "1",
    ]
    warm = ["--warm_start.dataset", "demo:ocaml/warm-start", "--warm_start.limit", "64"]
    warm += ["--warm_start.sft.max_steps", "2", "--warm_start.sft.logging_steps", "1"]
    assert train(config, *fresh, *warm, "--max_steps", "1") == 0
    assert [line["step"] for line in lines(run / "sft_metrics.jsonl")] == [1, 2]
    assert lines(run / "sft_metrics.jsonl")[0]["loss"] > 0
    assert len(lines(run / "metrics.jsonl")) == 1
    assert (run / "warm_start" / "model.safetensors").exists()
    assert (run / "final" / "tokenizer.json").exists()


def test_a_run_over_several_turns_trains_and_measures_chains(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    chat = [
        "--prompt.style",
        "chat",
        "--turns.max",
        "2",
        "--data.held_out",
        "0.25",
        "--evaluation.samples",
        "2",
    ]
    # An untrained model ends one answer in 300: with as many tokens some do, and are asked again.
    assert train(config, *chat, "--max_steps", "2", "--max_completion_length", "60") == 0
    turns, chains = lines(run / "turns.jsonl"), lines(run / "completions.jsonl")
    assert len(chains) == 16
    assert len(turns) == sum(one["turns"] for one in chains)
    assert (
        lines(run / "metrics.jsonl")[-1]["turns/pass_by_2"]
        >= lines(run / "metrics.jsonl")[-1]["turns/pass_by_1"]
    )
    for name in ("before", "after"):
        measured = json.loads((run / "eval" / f"{name}.json").read_text())["measurements"]
        assert [[*one["turns"]["green_by"]] for one in measured] == [["1", "2"]] * len(measured)


def test_options_that_cannot_work_are_misuse(config: Path) -> None:
    with pytest.raises(Misuse, match="must be divisible by num_generations"):
        train(config, "--num_generations", "3")
    with pytest.raises(Misuse, match="takes 16 different tasks .*, and there are only 8"):
        train(config, "--per_device_train_batch_size", "64")
    with pytest.raises(Misuse, match="no tokenizer can be loaded from"):
        train(config, "--model.name", "/nowhere/at/all")


def test_a_dry_run_says_what_is_missing(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from trainer.train import main

    assert main(config, dry_run=True) == 0
    assert json.loads(capfd.readouterr().out)["grpo"]["max_steps"] == 7
    assert main(config, ["--reward.urls", "http://127.0.0.1:1"], dry_run=True) == 3
    assert (
        "FAILED graders: not ready after 0 s: no grading service answers at http"
        in capfd.readouterr().err
    )
    assert (
        main(
            config,
            ["--data.dataset", "nowhere.jsonl", "--reward.rubric", "ocaml/none@1"],
            dry_run=True,
        )
        == 2
    )
    said = capfd.readouterr().err
    assert "FAILED tasks: nowhere.jsonl: cannot be read" in said
    assert "has no ocaml/none@1; it has: ocaml/graduated@1" in said
    assert not (tmp_path / "run").exists()
