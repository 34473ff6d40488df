"""How weights get to a generation server: whole files, by their own names."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def module() -> ModuleType:
    """The module under test. It loads torch, so it is imported when a test runs, not when pytest
    collects."""
    return import_module("trainer.generation.weights")


@pytest.fixture
def folder(module: Any, tmp_path: Path) -> Any:
    return module.WeightsFolder(tmp_path / "weights", "run")


def tensors() -> list[tuple[str, Any]]:
    import torch

    return [("a", torch.arange(6.0).reshape(2, 3)), ("b", torch.ones(2, dtype=torch.bfloat16))]


def read(file: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(file)


def test_a_version_holds_every_tensor_as_it_is(folder: Any) -> None:
    import torch

    file = folder.weights("run-1", tensors())
    found = read(file)
    assert {name: tensor.dtype for name, tensor in found.items()} == {
        "a": torch.float32,
        "b": torch.bfloat16,
    }
    assert torch.equal(found["a"], tensors()[0][1])
    assert [path.name for path in file.parent.iterdir()] == ["run-1.safetensors"]


def test_tied_and_transposed_tensors_are_written_in_full(folder: Any) -> None:
    import torch

    shared = torch.arange(6.0).reshape(2, 3)
    found = read(
        folder.weights("run-1", [("embed", shared), ("head", shared), ("turned", shared.T)])
    )
    assert torch.equal(found["embed"], found["head"])
    assert torch.equal(found["turned"], shared.T)


def test_only_the_last_two_versions_of_this_run_stay_and_nothing_else_goes(folder: Any) -> None:
    folder.path.mkdir()
    others = ["model.safetensors", "other-1.safetensors", "runner-1.safetensors"]
    for name in others:
        (folder.path / name).write_text("somebody's")
    for number in range(1, 5):
        folder.weights(f"run-{number}", tensors())
    own = ["run-3.safetensors", "run-4.safetensors"]
    assert sorted(path.name for path in folder.path.iterdir()) == sorted([*others, *own])
    folder.clear()
    assert sorted(path.name for path in folder.path.iterdir()) == sorted(others)


def test_a_folder_with_nothing_else_in_it_goes_with_the_run(folder: Any) -> None:
    folder.clear()
    folder.weights("run-1", tensors())
    folder.clear()
    assert not folder.path.exists()


def test_every_tensor_is_asked_for_before_a_full_or_foreign_disk_is_noticed(
    module: Any, tmp_path: Path
) -> None:
    (tmp_path / "weights").write_text("a file where the folder should be")
    asked = []

    def walk() -> Iterator[tuple[str, Any]]:
        for name, tensor in tensors():
            asked.append(name)
            yield name, tensor

    with pytest.raises(OSError, match="weights"):
        module.WeightsFolder(tmp_path / "weights", "run").weights("run-1", walk())
    assert asked == ["a", "b"]
