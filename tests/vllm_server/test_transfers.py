"""Weights that are changed on their way to a real vLLM server: the run ends by their checksums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.fake_vllm import Relay
from tests.vllm_server.conftest import Server, Training

pytestmark = pytest.mark.training
LORA = ("--lora.r", "8", "--lora.alpha", "16")
UPDATE, LOAD = "/update_weights", "/v1/load_lora_adapter"


@pytest.fixture(scope="module")
def fresh(server: Server, model: Path) -> Server:
    server.gradus(model, "--lora-rank", "8")
    return server


def change_file(path: Path, ending: str) -> None:
    """Change one number of the first tensor whose name ends so."""
    tensors = load_file(path)
    name = next(name for name in sorted(tensors) if name.endswith(ending))
    tensors[name].view(-1)[0] += 0.01
    save_file(tensors, path)


def change_second_transfer(path: str, body: Any, relay: Relay) -> None:
    if path == UPDATE and relay.paths().count(UPDATE) == 2:
        change_file(Path(body["update_info"]["path"]), "norm.weight")
    if path == LOAD and relay.paths().count(LOAD) == 2:
        change_file(Path(body["lora_path"]) / "adapter_model.safetensors", "lora_B.weight")


# adapters first: a server whose base weights were replaced takes none
@pytest.mark.parametrize(("options", "name"), [(LORA, "lora_b"), ((), "norm.weight")])
def test_a_weight_that_changed_on_its_way_ends_the_run(
    relay: Relay,
    fresh: Server,
    model: Path,
    training: Callable[..., Training],
    options: tuple[str, ...],
    name: str,
) -> None:
    run = training(model, relay.url)
    relay.before = lambda path, body: change_second_transfer(path, body, relay)
    assert run(*options, "--generation.verify_sync", "never") == 3
    assert "vLLM holds other weights than it was sent: 1 of" in run.said
    assert name in run.said.partition("among them")[2]
    assert run.largest("generation/sync_tensors_compared") > 0
