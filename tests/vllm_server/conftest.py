"""Real vLLM servers of `make vllm`'s environment on tiny models, and runs that are trained against
them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_training import TASKS, LengthWorker, lines
from tests.fake_grader import INFO, Service
from tests.fake_vllm import Relay
from tests.ports import free_port
from trainer.config.run import FreshModel
from trainer.runs.folder import append_lines

BIN = Path(__file__).parents[2] / ".venv-vllm" / "bin"
READY_S = 400
EXACT = 1e-4
"""What float32 on both sides may differ by."""
CONFIG = """
model: {{name: {model}, cpu_threads: 1}}
data: {{dataset: {tasks}}}
reward: {{grader: ocaml, urls: {grader}, deadline_s: 20}}
grpo: {{max_steps: 3, save_steps: 50, num_generations: 4, per_device_train_batch_size: 8, max_completion_length: 12,
       learning_rate: 1e-2, lr_scheduler_type: constant}}
generation: {{backend: vllm, url: {url}, verify_sync: always, max_logprob_difference: 1e-4, restart_wait_s: 240}}
output_dir: {output_dir}
"""  # noqa: E501


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the environment there is nothing to test with."""
    absent = pytest.mark.skip(reason="no vLLM here: `make vllm` installs it into .venv-vllm")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))
            if not (BIN / "gradus").exists():
                item.add_marker(absent)


class Server:
    """One vLLM server at a time, in a process group of its own, always at the same port."""

    def __init__(self, logs: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._logs = logs
        self._process: subprocess.Popen[bytes] | None = None
        self._command: Sequence[str] = ()
        self._environment: Mapping[str, str] = {}
        self._starts = 0

    def gradus(self, model: Path, *options: str) -> None:
        """`gradus vllm MODEL OPTIONS`, until it is healthy."""
        self._start([str(BIN / "gradus"), "vllm", str(model), *self._sized(), *options], {})

    def bare(self, model: Path, **environment: str) -> None:
        """vLLM without anything of ours; one that is just that and runs is kept."""
        command = [
            str(BIN / "python"),
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            str(model),
        ]
        memory = [
            "--enforce-eager",
            "--gpu-memory-utilization",
            "0.3",
            "--kv-cache-memory-bytes",
            str(64 << 20),
        ]
        command = [*command, *self._sized(), *memory, "--host", "127.0.0.1", "--dtype", "float32"]
        environment = {"VLLM_SERVER_DEV_MODE": "0"} | environment
        if self._process is None or (self._command, self._environment) != (command, environment):
            self._start(command, environment)

    def _sized(self) -> list[str]:
        return ["--port", str(self.port), "--max-model-len", "128", "--max-num-seqs", "16"]

    def again(self) -> None:
        self._start(self._command, self._environment)

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.stop()
        self._command, self._environment, self._starts = command, environment, self._starts + 1
        with (self._logs / f"vllm-{self._starts}.log").open("wb") as log:
            env = {**os.environ, "HF_HUB_OFFLINE": "1", **environment}
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=env, start_new_session=True
            )
        give_up_at = time.monotonic() + READY_S
        while not self._healthy():
            assert self._process.poll() is None, Path(log.name).read_text(errors="replace")[-3000:]
            assert time.monotonic() < give_up_at, Path(log.name).read_text(errors="replace")[-3000:]
            time.sleep(0.5)

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """SIGKILL for all of its processes at once, as when memory runs out or a machine goes."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("vllm"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "untied", tied=False)


@pytest.fixture(scope="session")
def tied_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tied", tied=True)


def make_model(folder: Path, *, tied: bool) -> Path:
    from trainer.models.fresh import build_model, train_tokenizer

    sizes = FreshModel(
        hidden_size=64, intermediate_size=128, layers=2, heads=2, kv_heads=1, vocab_size=300
    )
    tokenizer = train_tokenizer(["let f x = x + 1", "(* add 1 *)"], sizes)
    model = build_model("qwen3", sizes, tokenizer, seed=1)
    model.config.tie_word_embeddings = tied
    type(model)(model.config).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Training:
    """One run's folder, what was said in it, and what it logged."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.folder = folder
        self._config = config

    def __call__(self, *overrides: str, resume: str = "auto") -> int:
        from trainer.train import main

        return main(self._config, overrides, resume=resume)

    def in_processes(self, number: int, *overrides: str) -> subprocess.CompletedProcess[str]:
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(number)]
        launch += ["--master_port", str(free_port()), "-m", "gradus", "train", str(self._config)]
        launch += overrides
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            launch, capture_output=True, text=True, check=False, env=env, timeout=600
        )

    @property
    def said(self) -> str:
        return (self.folder / "training.log").read_text()

    @property
    def steps(self) -> list[dict[str, Any]]:
        return lines(self.folder / "metrics.jsonl")

    @property
    def resolved(self) -> Any:
        """What the run was told, with what it chose itself."""
        return json.loads((self.folder / "config.resolved.json").read_text())

    def arguments(self, step: int) -> Any:
        """TRL's own, as the checkpoint of a step has them."""
        import torch

        return torch.load(
            self.folder / f"checkpoint-{step}" / "training_args.bin", weights_only=False
        )

    def largest(self, name: str) -> float:
        return max(float(step[name]) for step in self.steps if name in step)


@pytest.fixture
def grader() -> Iterator[str]:
    """The URL of a real API whose worker rewards by length, for longer than a vLLM server takes to
    start anew."""
    with Service().running() as running:
        running.worker.__class__ = LengthWorker
        running.call(
            lambda: asyncio.ensure_future(running.worker.broker.heartbeat("echo", INFO, 1800))
        )
        yield running.url


@pytest.fixture
def training(tmp_path: Path, grader: str) -> Callable[[Path, str], Training]:
    tasks = tmp_path / "tasks.jsonl"
    append_lines(tasks, TASKS)

    def made(model: Path, url: str) -> Training:
        folder = tmp_path / "run"
        config = tmp_path / "run.yaml"
        filled = CONFIG.format(model=model, tasks=tasks, grader=grader, url=url, output_dir=folder)
        config.write_text(filled)
        return Training(folder, config)

    return made


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    with Relay(to=server.url).serving() as relay:
        yield relay
