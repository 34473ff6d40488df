"""One run and its generation server: what is refused, tried again, sent again, and when it is given
up."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_vllm import LOGPROB, VllmLike, slow
from trainer.config.run import GenerationConfig
from trainer.generation.responses import GenerationStopped

PROMPTS = [[3, 4], [5, 6, 7]]
RUN = "gradus-test"


@pytest.fixture
def like() -> Iterator[VllmLike]:
    with VllmLike().serving() as like:
        yield like


class Run:
    """A client with the rest of a run around it: weights to send, what was said, which groups came
    early."""

    def __init__(self, url: str, folder: Path, difference: float = 0.0, **options: Any) -> None:
        from trainer.generation.client import Client, GenerationState, Model
        from trainer.generation.weights import WeightsFolder

        settings = {"restart_wait_s": 60, "request_timeout_s": 60, "tries": 3, **options}
        config = GenerationConfig(backend="vllm", url=url, **settings)
        self.said: list[str] = []
        self.groups: list[int] = []
        self.compared: list[Sequence[int]] = []
        written = WeightsFolder(folder, RUN)
        self.served = GenerationState(
            config, written, RUN, self.said.append, lambda index, group: self.groups.append(index)
        )

        def logprobs(ids: Sequence[int]) -> list[float]:
            self.compared.append(ids)
            return [LOGPROB - difference] * (len(ids) - 1)

        own = Model(logprobs, vocab_size=10, dtype="torch.float32")
        self.folder = written
        self.client = Client(self.served, self._write, own)

    def _write(self, name: str) -> tuple[Path, dict[str, list[float]]]:
        import torch

        path = self.folder.weights(name, [("w", torch.ones(1))])
        return path, {"w": [1.0, 1.0]}

    def step(self) -> dict[str, Any]:
        self.client.send_weights()
        return self.generate()

    def generate(self, n: int = 2, **options: Any) -> dict[str, Any]:
        return self.client.generate(PROMPTS, None, n=n, max_tokens=4, temperature=0.7, **options)


@pytest.fixture
def start(like: VllmLike, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def started(wants_adapter: bool = False, **options: Any) -> Run:
        run = Run(like.url, tmp_path / "weights", **options)
        runs.append(run)
        run.client.connect(wants_adapter)
        return run

    yield started
    for run in runs:
        run.client.close()


@pytest.mark.parametrize(
    ("ends", "finish_reason"), [(frozenset({2}), "stop"), (frozenset(), "length")]
)
def test_held_out_completions_come_from_the_server_too(
    start: Callable[..., Run], like: VllmLike, ends: frozenset[int], finish_reason: str
) -> None:
    from trainer.config.run import FreshModel, PromptConfig
    from trainer.evaluate.held_out import GenerationServer
    from trainer.evaluate.plan import (
        GeneratedCompletion,
        GenerationError,
        Problem,
        build_requests,
        make_plan,
    )
    from trainer.models.fresh import train_tokenizer

    like.settings["model_config"]["max_model_len"] = 100
    run = start()
    run.step()
    tokenizer = train_tokenizer(["let f x = 1"], FreshModel())
    problems = [Problem("a", "let f", None), Problem("b", "let f x = " * 200, None)]
    fields: dict[str, Any] = {
        "model": "m",
        "served": True,
        "samples": 1,
        "temperature": 0.7,
        "greedy": True,
    }
    plan = make_plan(problems, PromptConfig(), tasks="t", max_new_tokens=2, **fields)
    trainer = SimpleNamespace(
        vllm_generation=SimpleNamespace(vllm_client=run.client), served=run.served
    )
    source = GenerationServer(trainer, ends, tokenizer, plan, 64)

    async def all_of() -> dict[Any, Any]:
        asks = build_requests(problems, plan)
        keys = {ask.key for ask in asks}
        return {ask.key: found async for ask, found in source.write(asks, keys)}

    found = asyncio.run(all_of())
    for mode in ("sampled", "greedy"):
        written = found[mode, "a", 0, 1]
        refused = found[mode, "b", 0, 1]
        assert isinstance(written, GeneratedCompletion)
        assert (written.text, written.finish_reason) == (
            tokenizer.decode([1, 2], skip_special_tokens=True),
            finish_reason,
        )
        assert isinstance(refused, GenerationError)
        assert refused.kind == "refused"
    assert "generate_s" not in run.served.metrics, "a training step must not report it"
    assert sorted(run.groups) == [0, 1], "they are no completions of a training step"


# ---------------------------------------------------------------------- one good step


def test_a_step_sends_weights_proves_them_and_hands_over_every_group(
    start: Callable[..., Run], like: VllmLike
) -> None:
    run = start()
    made = run.step()
    assert made["completion_ids"] == [[1, 2]] * 4
    assert made["logprobs"] == [[[-0.5], [-0.5]]] * 4
    assert sorted(run.groups) == [0, 1]
    assert run.compared == [[5, 6, 7]]
    assert like.weight_version == f"{RUN}-1"
    assert not like.paused
    assert set(run.served.metrics) == {
        "sync_s",
        "generate_s",
        "sync_logprob_difference_max",
        "sync_logprob_difference_mean",
    }


def test_sampling_is_what_the_trainer_says_and_what_is_ours_stays_ours(
    start: Callable[..., Run], like: VllmLike
) -> None:
    run = start(verify_sync="never")
    run.client.send_weights()
    run.generate(generation_kwargs={"min_tokens": 1, "n": 7}, structured_outputs_regex="a+")
    asked = [body for path, body in like.log if path == "/v1/completions"]
    assert all(
        body["temperature"] == 0.7 and body["max_tokens"] == 4 and body["min_tokens"] == 1
        for body in asked
    )
    assert all(body["n"] == 2 and body["structured_outputs"] == {"regex": "a+"} for body in asked)
    assert all("seed" not in body for body in asked)
    assert run.compared == []


def test_the_first_sync_alone_is_proved_unless_every_one_is_asked_for(
    start: Callable[..., Run],
) -> None:
    first, always = start(verify_sync="first"), start(verify_sync="always")
    for run in (first, always):
        run.step()
        run.step()
    assert (len(first.compared), len(always.compared)) == (1, 2)


@pytest.mark.parametrize("difference", [0.06, float("inf"), float("nan")])
def test_a_server_that_disagrees_ends_the_run_before_a_completion(
    start: Callable[..., Run], like: VllmLike, difference: float
) -> None:
    run = start(difference=difference)
    with pytest.raises(GenerationStopped, match="differ by"):
        run.step()
    assert run.groups == []


def test_bfloat16_may_differ_by_more_than_float32(
    start: Callable[..., Run], like: VllmLike
) -> None:
    like.settings["model_config"]["dtype"] = "torch.bfloat16"
    run = start(difference=0.06)
    run.step()
    assert run.served.metrics["sync_logprob_difference_mean"] == pytest.approx(0.06)


# ---------------------------------------------------------------------- other weights than ours


def test_a_server_that_was_started_again_gets_the_weights_again_and_is_proved_again(
    start: Callable[..., Run], like: VllmLike
) -> None:
    run = start()
    run.step()
    like.start_again()
    run.generate()
    assert like.weight_version == f"{RUN}-1"
    assert len(run.compared) == 2
    assert any("does not hold weights" in text for text in run.said)


def test_a_server_that_was_started_again_before_a_sync_is_set_up_again(
    start: Callable[..., Run], like: VllmLike
) -> None:
    run = start()
    run.step()
    like.start_again()
    run.step()
    assert like.weight_version == f"{RUN}-2"


def test_completions_written_while_the_weights_changed_are_thrown_away(
    start: Callable[..., Run], like: VllmLike
) -> None:
    run = start(verify_sync="never")
    run.client.send_weights()
    intrusions = iter(["another run's"])

    def before(path: str, body: Any) -> None:
        if path == "/v1/completions" and (other := next(intrusions, None)):
            like.weight_version = other

    like.before = before
    made = run.generate()
    assert len(made["completion_ids"]) == 4
    assert like.weight_version == f"{RUN}-1"
    assert run.groups.count(0) == 2, "asked for anew"
    assert any("was given other weights" in text for text in run.said)


def test_two_runs_on_one_server_stop_instead_of_taking_turns(
    start: Callable[..., Run], like: VllmLike
) -> None:
    run = start(verify_sync="never")
    run.client.send_weights()

    def before(path: str, body: Any) -> None:
        if path == "/v1/completions":
            like.weight_version = "another run's"

    like.before = before
    with pytest.raises(GenerationStopped, match=r"3 tries; the last: .*was given other weights"):
        run.generate()


def test_adapters_come_and_go_by_name_and_none_is_left(like: VllmLike, tmp_path: Path) -> None:
    like.settings["lora_config"] = {"max_lora_rank": 16}
    like.adapters = ["somebody's"]
    run = Run(like.url, tmp_path / "weights")
    assert run.client.connect(wants_adapter=True) == "lora"
    run.step()
    run.step()
    assert like.adapters == ["somebody's", f"{RUN}-2"]
    assert not [line for line in run.said if "try 1" in line]
    like.start_again()
    run.generate()
    assert like.adapters == [f"{RUN}-2"]
    run.client.close()
    assert like.adapters == []


def test_adapters_are_refused_on_a_base_that_was_changed(
    like: VllmLike, start: Callable[..., Run]
) -> None:
    like.settings["lora_config"] = {"max_lora_rank": 16}
    like.weight_version = "another run's"
    with pytest.raises(GenerationStopped, match="no longer holds its base model"):
        start(wants_adapter=True)
    like.weight_version = None
    run = start(wants_adapter=True)
    run.step()
    like.weight_version = "another run's"
    with pytest.raises(GenerationStopped, match="no longer holds its base model"):
        run.generate()


# --------------------------------------------------------------------------------------- the unfit


@pytest.mark.parametrize(
    ("section", "value", "wants_adapter", "options", "complaint"),
    [
        ("model_config", {"logprobs_mode": "raw_logprobs"}, False, {}, "processed_logprobs"),
        ("model_config", {}, False, {}, "logprobs-mode None"),
        ("model_config", None, False, {}, "logprobs-mode None"),
        (
            "weight_transfer_config",
            {"backend": "nccl"},
            False,
            {},
            "takes weights by nccl.*sends them by file",
        ),
        ("weight_transfer_config", None, False, {}, "takes weights by nothing"),
        ("lora_config", None, True, {"sync": "lora"}, "without --enable-lora"),
    ],
)
def test_a_server_that_was_started_otherwise_is_refused_with_how_to_start_it(
    like: VllmLike,
    start: Callable[..., Run],
    section: str,
    value: Any,
    wants_adapter: bool,
    options: dict[str, Any],
    complaint: str,
) -> None:
    like.settings[section] = value
    with pytest.raises(GenerationStopped, match=complaint) as refused:
        start(wants_adapter, **options)
    assert like.url in str(refused.value)
    assert "gradus vllm MODEL" in str(refused.value)


def test_a_server_without_its_development_endpoints_is_refused(
    like: VllmLike, start: Callable[..., Run]
) -> None:
    like.before = lambda path, body: (404, b"Not Found") if path == "/server_info" else None
    with pytest.raises(GenerationStopped, match="VLLM_SERVER_DEV_MODE=1"):
        start()


def test_a_server_of_an_untested_version_is_refused_unless_that_is_allowed(
    like: VllmLike, start: Callable[..., Run]
) -> None:
    like.version = "0.99.0"
    with pytest.raises(GenerationStopped, match=r"0\.99\.0 were never tried together"):
        start()
    start(allow_untested_versions=True).step()


# ---------------------------------------------------------------------- away, late, nonsense


def test_a_server_that_never_comes_is_waited_for_aloud_and_given_up(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and deaf
        taken.bind(("127.0.0.1", 0))
        run = Run(f"http://127.0.0.1:{taken.getsockname()[1]}", tmp_path, restart_wait_s=0.5)
        with pytest.raises(
            GenerationStopped, match=r"no vLLM server at .* after 0\.5 s: .*\n.*gradus vllm MODEL"
        ):
            run.client.connect(wants_adapter=False)
        run.client.close()
    assert any("waiting for the vLLM server" in text for text in run.said)


@pytest.mark.parametrize(
    "nonsense",
    [
        (200, b"<html>sign in</html>"),
        (200, b""),
        (200, b"null"),
        (200, b"[" * 100_000),
        (200, b"9" * 10_000),
        (200, b'{"choices": [{}, {}]}'),
        (200, b"\xff\xfe"),
        (500, b"EngineDeadError"),
        (503, b""),
        (429, b"busy"),
    ],
)
def test_nonsense_is_asked_for_again_and_given_up_after_a_few_tries(
    like: VllmLike, start: Callable[..., Run], nonsense: tuple[int, bytes]
) -> None:
    run = start(verify_sync="never")
    run.client.send_weights()
    answers = iter([nonsense, nonsense])
    like.before = lambda path, body: next(answers, None) if path == "/v1/completions" else None
    assert len(run.generate()["completion_ids"]) == 4
    like.before = lambda path, body: nonsense if path == "/v1/completions" else None
    with pytest.raises(GenerationStopped, match="did not complete prompts in 3 tries"):
        run.generate()


def test_what_no_other_try_will_mend_is_not_tried_again(
    like: VllmLike, start: Callable[..., Run]
) -> None:
    run = start(verify_sync="never")
    run.client.send_weights()
    like.before = lambda path, body: (
        (400, b"prompt too long") if path == "/v1/completions" else None
    )
    with pytest.raises(GenerationStopped, match="status 400: prompt too long"):
        run.generate()
    assert like.paths().count("/v1/completions") == len(PROMPTS)


def test_only_what_is_missing_is_asked_for_again(like: VllmLike, start: Callable[..., Run]) -> None:
    run = start(verify_sync="never")
    run.client.send_weights()
    failing = iter([True])

    def before(path: str, body: Any) -> Any:
        if path == "/v1/completions" and body["prompt"] == [PROMPTS[1]] and next(failing, False):
            return 500, b"once"
        return None

    like.before = before
    run.generate()
    assert sorted(
        body["prompt"][0] for path, body in like.log if path == "/v1/completions"
    ) == sorted([PROMPTS[0], PROMPTS[1], PROMPTS[1]])


def test_a_late_answer_is_not_waited_for(like: VllmLike, start: Callable[..., Run]) -> None:
    run = start(verify_sync="never", request_timeout_s=0.2, tries=2)
    run.client.send_weights()
    like.before = slow(1.0, on="/v1/completions")
    with pytest.raises(
        GenerationStopped, match=r"no answer after 0\.2 s \(generation\.request_timeout_s\)"
    ):
        run.generate()


def test_a_sync_over_its_deadline_is_a_message(like: VllmLike, start: Callable[..., Run]) -> None:
    run = start(sync_deadline_s=0.2, tries=2)
    like.before = slow(1.0, on="/update_weights")
    with pytest.raises(
        GenerationStopped, match=r"did not take new weights in 2 tries[^\n]*\n.*start it again"
    ):
        run.client.send_weights()
    assert like.paused, "it has half of the weights"


def test_an_update_that_somebody_broke_off_is_ended_first(
    like: VllmLike, start: Callable[..., Run]
) -> None:
    like.updating = like.paused = like.engine_ready = True
    run = start()
    run.step()
    assert like.weight_version == f"{RUN}-1"
    assert not like.paused


def test_weights_that_were_lost_on_the_way_are_sent_again(
    like: VllmLike, start: Callable[..., Run]
) -> None:
    run = start()
    lost = iter([(500, b"IncompleteRead")])
    like.before = lambda path, body: next(lost, None) if path == "/update_weights" else None
    run.step()
    assert like.weight_version == f"{RUN}-1"
    assert not like.paused


def test_an_answer_that_trickles_is_late_too(tmp_path: Path) -> None:
    with trickling() as url:
        run = Run(url, tmp_path, request_timeout_s=0.5, tries=1)
        with pytest.raises(GenerationStopped, match=r"no answer after 0\.5 s"):
            run.generate()
        run.client.close()


class trickling:
    """A server that says a byte of its answer every tenth of a second, for ever."""

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._socket.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._trickle, args=(connection,), daemon=True).start()

    def _trickle(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                while not self._over.wait(0.1):
                    connection.sendall(b" ")
            except OSError:
                return


def test_a_disk_that_takes_no_weights_stops_the_run(like: VllmLike, tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("a file where the folder should be")
    run = Run(like.url, tmp_path / "weights")
    run.client.connect(wants_adapter=False)
    with pytest.raises(GenerationStopped, match="could not be written"):
        run.client.send_weights()
    run.client.close()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("rank", [None, 16])
def test_a_server_as_documented_suits_a_trainer_as_documented(
    like: VllmLike, device: str, rank: int | None
) -> None:
    from services.generation.serve import VllmServerOptions, build_command
    from trainer.generation.client import select_sync
    from trainer.generation.server import VllmServer

    command = build_command(VllmServerOptions("m", lora_rank=rank), device)
    like.settings["weight_transfer_config"] = json.loads(
        command[command.index("--weight-transfer-config") + 1]
    )
    like.settings["lora_config"] = {"max_lora_rank": rank} if rank else None
    config = GenerationConfig(backend="vllm", url=like.url)
    for wants_adapter in (False, True):
        way = select_sync(VllmServer(config), config, wants_adapter)
        assert way == ("lora" if rank and wants_adapter else "file")


@pytest.mark.parametrize(
    ("server_sync", "adapters", "wants_adapter", "way"),
    [
        ("file", False, True, "file"),
        ("file", True, True, "lora"),
        ("nccl", True, True, "lora"),
        ("nccl", True, False, None),
    ],
)
def test_the_way_is_the_first_of_the_table_that_both_sides_have(
    like: VllmLike,
    server_sync: str,
    adapters: bool,
    wants_adapter: bool,
    way: str | None,
) -> None:
    from trainer.generation.client import select_sync
    from trainer.generation.server import VllmServer

    like.settings |= {
        "weight_transfer_config": {"backend": server_sync},
        "lora_config": {} if not adapters else {"r": 8},
    }
    config = GenerationConfig(backend="vllm", url=like.url)
    if way is not None:
        assert select_sync(VllmServer(config), config, wants_adapter) == way
        return
    with pytest.raises(
        GenerationStopped, match=r"takes weights by nccl.*gradus vllm MODEL --sync file"
    ):
        select_sync(VllmServer(config), config, wants_adapter)


def test_the_dry_run_refuses_a_server_that_takes_weights_otherwise(like: VllmLike) -> None:
    from trainer.check import collect_findings
    from trainer.config.run import TrainConfig

    def found(**generation: Any) -> tuple[str | None, str]:
        config = TrainConfig(
            model={"name": "fresh:qwen3"},
            reward={"grader": "ocaml", "urls": ["http://127.0.0.1:9"]},
            generation={"backend": "vllm", "url": like.url, **generation},
            data={"dataset": "demo:ocaml"},
            output_dir=Path("unused"),
        )
        ((_, kind, text),) = [one for one in collect_findings(config) if one[0] == "vLLM server"]
        return kind, text

    kind, text = found()
    assert kind is None
    assert text.endswith("weights by file")
    like.settings["weight_transfer_config"] = {"backend": "nccl"}
    kind, text = found()
    assert kind == "fault"
    assert "gradus vllm MODEL --sync file" in text
    assert found(sync="nccl")[0] is None
