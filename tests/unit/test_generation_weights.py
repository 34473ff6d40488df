"""How weights get to a generation server: whole files, by their own names, for nobody else."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from gradus.errors import Misuse


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


def test_a_shared_folder_is_told_as_an_absolute_path(module: Any, folder: Any) -> None:
    file = folder.weights("run-1", tensors())
    assert module.SharedFolder().info(file) == {"path": str(file.resolve())}


# --------------------------------------------------------------------------------------- over HTTP


@pytest.fixture
def served(module: Any, folder: Any) -> Iterator[tuple[Any, Path]]:
    file = folder.weights("run-1", tensors())
    (folder.path / "notes.txt").write_text("not weights")
    (folder.path / "inner").mkdir()
    (folder.path / "inner" / "deep.safetensors").write_text("deep")
    (folder.path.parent / "outside.safetensors").write_text("outside")
    channel = module.HttpWeightServer("127.0.0.1:0", folder.path)
    yield channel, file
    channel.close()


def test_who_is_told_the_address_gets_the_file(served: tuple[Any, Path]) -> None:
    import torch
    from safetensors.torch import load

    channel, file = served
    answer = httpx.get(channel.info(file)["url"])
    assert answer.status_code == 200
    assert torch.equal(load(answer.content)["a"], tensors()[0][1])


def status_of(channel: Any, path: str, method: str = "GET") -> int:
    """Sent as it stands: clients tidy up what a stranger would send."""
    host, _, port = channel.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.endheaders()
    return connection.getresponse().status


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "//",
        "/run-1.safetensors",
        "/wrong/run-1.safetensors",
        "/{secret}",
        "/{secret}/",
        "/{secret}/.",
        "/{secret}/..",
        "/{secret}/../outside.safetensors",
        "/{secret}/..%2foutside.safetensors",
        "/{secret}/%2e%2e%2foutside.safetensors",
        "/{secret}/..\\outside.safetensors",
        "/{secret}/inner/deep.safetensors",
        "/{secret}/inner%2fdeep.safetensors",
        "/{secret}/notes.txt",
        "/{secret}/run-1.safetensors?x",
        "/{secret}/run-1.safetensors%00",
        "/{secret}/gone-1.safetensors",
        "/{secret}é/run-1.safetensors",
        "run-1.safetensors",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_everybody_else_and_every_other_path_gets_nothing(
    served: tuple[Any, Path], path: str, method: str
) -> None:
    channel, file = served
    secret = channel.info(file)["url"].split("/")[3]
    sent = path.format(secret=secret).encode().decode("latin-1")
    if not sent.isascii():
        assert httpx.get(f"http://{channel.address}{path.format(secret=secret)}").status_code == 404
    else:
        assert status_of(channel, sent, method) == 404


def test_two_runs_have_two_secrets_and_the_port_is_free_afterwards(
    module: Any, folder: Any
) -> None:
    file = folder.weights("run-1", tensors())
    one, other = (
        module.HttpWeightServer("127.0.0.1:0", folder.path),
        module.HttpWeightServer("127.0.0.1:0", folder.path),
    )
    assert one.info(file)["url"].split("/")[3] != other.info(file)["url"].split("/")[3]
    other.close()
    one.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(one.info(file)["url"])


@pytest.mark.parametrize(
    "address",
    [
        "",
        "9000",
        ":9000",
        "0.0.0.0:0",
        "[::]:0",
        "127.0.0.1",
        "127.0.0.1:x",
        "127.0.0.1:70000",
        "203.0.113.9:0",
    ],
)
def test_an_address_that_the_server_could_not_use_is_refused(
    module: Any, address: str, tmp_path: Path
) -> None:
    with pytest.raises(Misuse, match=r"generation\.serve_weights_at"):
        module.HttpWeightServer(address, tmp_path)
