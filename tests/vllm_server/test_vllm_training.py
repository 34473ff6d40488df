"""Training against a real vLLM server: the same weights on both sides whatever happens to it, or no
training.

The order of the tests is that of the server's states, so that few starts do, each of half a minute:
without anything of ours, fresh with adapters, changed weights, killed, restarted, another model,
started by hand.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fake_vllm import Relay, slow
from tests.vllm_server.conftest import BIN, EXACT, Server, Training

pytestmark = pytest.mark.training
Make = Callable[..., Training]
LORA = ("--lora.r", "8", "--lora.alpha", "16")
COMPLETIONS, UPDATE = "/v1/completions", "/update_weights"


def assert_in_step(run: Training, steps: int) -> None:
    """Every step was proven: on a prompt after its sync, and on each sampled token by TRL's own
    measure."""
    assert [step["step"] for step in run.steps] == list(range(1, steps + 1))
    assert all("generation/sync_logprob_difference_max" in step for step in run.steps)
    assert run.largest("generation/sync_logprob_difference_max") <= EXACT
    assert run.largest("sampling/sampling_logp_difference/max") <= EXACT
    assert run.largest("grad_norm") > 0, "weights that do not move prove nothing"


def stopped_for(run: Training, *overrides: str) -> str:
    """Runs it, which must end with status 3; what it said last."""
    assert run(*overrides) == 3
    return run.said.partition("stopped: ")[2]


# ---------------------------------------------------------------------- a server of others


def test_a_server_without_development_endpoints_is_refused(
    server: Server, model: Path, training: Make
) -> None:
    server.bare(model)  # as test_vllm_evaluation.py leaves it
    said = stopped_for(training(model, server.url))
    assert "VLLM_SERVER_DEV_MODE=1" in said
    assert "gradus vllm MODEL" in said


# -------------------------------------------------------------- a fresh server that takes adapters


@pytest.fixture(scope="module")
def fresh(server: Server, model: Path) -> Server:
    server.gradus(model, "--lora-rank", "8")
    return server


def test_adapters_are_loaded_as_they_are_trained_and_none_is_left(
    fresh: Server, model: Path, training: Make
) -> None:
    run = training(model, fresh.url)
    assert run(*LORA, "--data.held_out", "0.25", "--evaluation.limit", "2") == 0
    assert_in_step(run, 3)
    assert "weights are synchronized by LoRA adapters" in run.said
    assert "held-out tasks, after" in run.said
    assert "try 1" not in run.said
    assert [one["id"] for one in httpx.get(f"{fresh.url}/v1/models").json()["data"]] == [str(model)]
    assert not (run.folder / "weights").exists()


def test_a_merged_adapter_goes_as_a_file_of_all_weights(
    fresh: Server, model: Path, training: Make
) -> None:
    run = training(model, fresh.url)
    assert run(*LORA, "--generation.sync", "file", "--lora.modules_to_save", "[lm_head]") == 0
    assert_in_step(run, 3)
    assert "weights are synchronized by files of all weights" in run.said


def test_a_server_whose_base_weights_were_changed_is_refused_for_adapters(
    fresh: Server, model: Path, training: Make
) -> None:
    said = stopped_for(training(model, fresh.url), *LORA)
    assert "no longer holds its base model" in said
    assert fresh.url in said


def test_all_weights_go_as_files_and_a_resumed_run_sends_its_own(
    fresh: Server, model: Path, training: Make
) -> None:
    run = training(model, fresh.url)
    assert run("--max_steps", "2", "--save_steps", "1") == 0
    assert run("--max_steps", "4") == 0
    assert_in_step(run, 4)
    assert "resuming from" in run.said
    assert run.largest("generation/sync_s") > 0
    assert run.largest("generation/generate_s") > 0
    assert not (run.folder / "weights").exists()


def test_two_processes_train_on_one_servers_completions(
    fresh: Server, model: Path, training: Make
) -> None:
    run = training(model, fresh.url)
    done = run.in_processes(2)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_in_step(run, 3)


def test_two_processes_end_together_with_a_checkpoint(
    relay: Relay, fresh: Server, model: Path, training: Make
) -> None:
    run = training(model, relay.url)
    relay.before = lambda path, body: (
        (400, b"no") if path == COMPLETIONS and relay.paths().count(UPDATE) == 2 else None
    )
    done = run.in_processes(2)
    assert done.returncode != 0
    assert "status 400: no" in run.said
    assert "resume from checkpoint-1" in run.said
    assert "Traceback" not in run.said


# ------------------------------------------------------------------ answers that are late or wrong


def garbled(path: str, times: int) -> Callable[[str, Any], Any]:
    left = iter(range(times))
    return lambda asked, body: (
        (200, b'{"choices": [{"token_') if asked == path and next(left, None) is not None else None
    )


def test_a_garbled_answer_is_asked_for_again(
    relay: Relay, fresh: Server, model: Path, training: Make
) -> None:
    run = training(model, relay.url)
    relay.before = garbled(COMPLETIONS, times=2)
    assert run() == 0
    assert_in_step(run, 3)
    assert "answered with no JSON" in run.said


def test_a_server_that_only_garbles_ends_the_run_with_a_checkpoint(
    relay: Relay, fresh: Server, model: Path, training: Make
) -> None:
    run = training(model, relay.url)

    def from_step_two(path: str, body: Any) -> Any:
        return garbled(COMPLETIONS, 1)(path, body) if relay.paths().count(UPDATE) == 2 else None

    relay.before = from_step_two
    said = stopped_for(run)
    assert "did not complete prompts in 3 tries" in said
    assert relay.url in said
    assert "checkpoint-1" in said
    assert (run.folder / "checkpoint-1").is_dir()
    relay.before = lambda path, body: None
    assert run() == 0
    assert_in_step(run, 3)


def test_a_server_that_is_too_slow_ends_the_run(
    relay: Relay, fresh: Server, model: Path, training: Make
) -> None:
    relay.before = slow(3.0, on=COMPLETIONS)
    run = training(model, relay.url)
    options = (
        "--generation.verify_sync",
        "never",
        "--generation.request_timeout_s",
        "0.5",
        "--generation.tries",
        "2",
    )
    assert "no answer after 0.5 s (generation.request_timeout_s)" in stopped_for(run, *options)


def test_new_weights_that_do_not_arrive_in_time_end_the_run(
    relay: Relay, fresh: Server, model: Path, training: Make
) -> None:
    relay.before = slow(3.0, on=UPDATE)
    said = stopped_for(
        training(model, relay.url), "--generation.sync_deadline_s", "1", "--generation.tries", "2"
    )
    assert "did not take new weights in 2 tries" in said


def test_weights_that_a_server_says_it_has_and_has_not_are_found_out(
    relay: Relay, fresh: Server, model: Path, training: Make
) -> None:
    def lost(path: str, body: Any) -> Any:
        return (200, {}) if path == UPDATE and relay.paths().count(UPDATE) > 1 else None

    relay.before = lost
    run = training(model, relay.url)
    said = stopped_for(run)
    assert "vLLM holds other weights than it was sent" in said
    assert [step["step"] for step in run.steps] == [1]


def test_a_version_that_nobody_has_tried_is_refused(
    relay: Relay, fresh: Server, model: Path, training: Make
) -> None:
    relay.before = lambda path, body: (200, {"version": "0.99.0"}) if path == "/version" else None
    run = training(model, relay.url)
    assert "never tried together" in stopped_for(run)
    assert run("--generation.allow_untested_versions", "true", "--max_steps", "1") == 0


# ---------------------------------------------------------------------- killed and restarted


def killed_at(server: Server, relay: Relay, moments: list[tuple[str, int]]) -> threading.Event:
    """Kill the server when so many requests came to a path, each time, and start it again; set
    after the last."""
    waiting = iter([*moments])
    over = threading.Event()
    now = next(waiting)
    guard = threading.Lock()

    def before(path: str, body: Any) -> None:
        nonlocal now
        with guard:
            if over.is_set() or path != now[0] or relay.paths().count(path) < now[1]:
                return
            server.kill()
            later = next(waiting, None)
            if later is None:
                over.set()
            else:
                now = later
            threading.Thread(target=server.again, daemon=True).start()

    relay.before = before
    return over


def test_a_server_killed_within_a_step_and_between_steps_is_given_the_weights_again(
    relay: Relay, fresh: Server, model: Path, training: Make
) -> None:
    run = training(model, relay.url)
    over = killed_at(fresh, relay, [(COMPLETIONS, 5), ("/pause", 4)])
    assert run("--max_steps", "4") == 0
    assert over.is_set()
    assert_in_step(run, 4)
    assert "does not hold weights" in run.said
    assert "waiting for the vLLM server" in run.said


def test_a_server_killed_for_good_ends_the_run_with_a_checkpoint(
    relay: Relay, fresh: Server, model: Path, training: Make
) -> None:
    def before(path: str, body: Any) -> None:
        if path == COMPLETIONS and relay.paths().count(UPDATE) == 2:
            relay.before = lambda path, body: None
            fresh.kill()

    relay.before = before
    run = training(model, relay.url)
    said = stopped_for(run, "--generation.restart_wait_s", "3")
    assert f"no vLLM server at {relay.url} after 3 s" in said
    assert "gradus vllm MODEL" in said
    assert (run.folder / "checkpoint-1").is_dir()


def test_a_server_that_was_never_there_ends_the_run(
    fresh: Server, model: Path, training: Make
) -> None:
    run = training(model, fresh.url)
    assert "no vLLM server at" in stopped_for(run, "--generation.restart_wait_s", "2")
    assert "No step was finished" in run.said


# ---------------------------------------------------------------------- other ways of starting


def test_tied_embeddings_are_in_step_as_well(
    server: Server, tied_model: Path, training: Make
) -> None:
    server.gradus(tied_model)
    run = training(tied_model, server.url)
    assert run() == 0
    assert_in_step(run, 3)


def test_adapters_on_a_server_that_takes_none_are_refused(
    server: Server, tied_model: Path, training: Make
) -> None:
    assert "without --enable-lora" in stopped_for(
        training(tied_model, server.url), *LORA, "--generation.sync", "lora"
    )


def test_a_server_with_other_log_probabilities_is_refused(
    server: Server, model: Path, training: Make
) -> None:
    server.bare(model, VLLM_SERVER_DEV_MODE="1")
    assert "--logprobs-mode raw_logprobs" in stopped_for(training(model, server.url))
    server.stop()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--host", "0.0.0.0"], "--trust-network"),
        (["--host", "::"], "--trust-network"),
        (["--sync", "pigeon"], "--sync pigeon"),
        (["--device", "abacus"], "--device abacus"),
    ],
)
def test_gradus_vllm_refuses_what_would_be_unsafe_or_unknown(
    model: Path, options: list[str], complaint: str
) -> None:
    done = subprocess.run(
        [BIN / "gradus", "vllm", str(model), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert complaint in done.stderr
