"""Perplexity against another computation of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from trainer.config.run import FreshModel, ModelConfig
from trainer.evaluate.perplexity import (
    Perplexity,
    compute_nats,
    compute_perplexity,
    main,
    read_documents,
)

pytestmark = pytest.mark.training
TEXT = "let f x = x + 1\nlet g y = f (f y)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trainer.models.fresh import make_fresh_model

    path = tmp_path_factory.mktemp("model")
    sizes = FreshModel(
        hidden_size=32,
        intermediate_size=64,
        layers=2,
        heads=2,
        kv_heads=1,
        head_dim=16,
        max_length=64,
    )
    make_fresh_model("qwen3", sizes, [TEXT], path, seed=1)
    return path


@pytest.fixture(scope="module")
def tiny(folder: Path) -> tuple[Any, Any]:
    from trainer.models.loading import load_model, load_tokenizer

    settings = ModelConfig(name=str(folder), device="cpu")
    return load_model(str(folder), settings, "float32").eval(), load_tokenizer(
        str(folder), settings
    )


def by_the_models_own_loss(model: Any, tokens: list[int]) -> float:
    import torch

    ids = torch.tensor([tokens])
    with torch.no_grad():
        return float(model(input_ids=ids, labels=ids).loss)


def rows(path: Path, *given: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


def test_it_is_the_models_own_loss_where_one_window_holds_everything(
    tiny: tuple[Any, Any], tmp_path: Path
) -> None:
    model, tokenizer = tiny
    given = rows(tmp_path / "x.jsonl", {"text": TEXT}, {"text": "let f x = x + 1"})
    for text in read_documents(given):
        ids = tokenizer(text)["input_ids"]
        nats = compute_nats(model, ids, 64) / (len(ids) - 1)
        assert nats == pytest.approx(by_the_models_own_loss(model, ids), rel=1e-5)


@pytest.mark.parametrize(
    "window", [16, *(pytest.param(size, marks=pytest.mark.slow) for size in (11, 2))]
)
def test_windows_foresee_every_token_once_from_what_they_hold(
    tiny: tuple[Any, Any], window: int
) -> None:
    import torch

    stride = window // 2

    model, tokenizer = tiny
    ids = tokenizer(TEXT)["input_ids"][:40]
    found = compute_nats(model, ids, window)
    expected = 0.0
    for place in range(1, len(ids)):
        # The window in which a token first comes: the first, or one that ends at a whole number of
        # strides after it.
        end = (
            window if place < window else window + stride * math.ceil((place + 1 - window) / stride)
        )
        start = max(0, min(end, len(ids)) - window)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids[start:place]])).logits[0, -1].double()
        expected -= float(torch.log_softmax(logits, -1)[ids[place]])
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_figures_are_exact() -> None:
    nats = [math.log(2) * 10, math.log(2) * 30]
    found = compute_perplexity(nats, [10, 10])
    assert found is not None
    assert found.value == pytest.approx(2**2)
    assert (found.low, found.high) == pytest.approx((2.0, 8.0))
    alone = compute_perplexity(nats[:1], [10])
    assert alone is not None
    assert (alone.value, alone.low, alone.high) == pytest.approx((2.0, 2.0, 2.0))
    assert "no interval" in alone.method
    assert compute_perplexity([], []) is None


def test_the_command_writes_its_figures_and_names_the_file_last(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "book.txt").write_text(TEXT * 4)
    assert main(str(folder), tmp_path / "book.txt", tmp_path / "out") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == str(tmp_path / "out/perplexity.json")
    found = Perplexity.model_validate_json(Path(said[-1]).read_text())
    assert (found.documents, found.window, found.data) == (1, 64, "book.txt")
    assert said[0].startswith("perplexity ")
    bits = found.tokens * math.log2(found.perplexity.value)
    assert found.bits_per_byte == pytest.approx(bits / len(TEXT * 4))


@pytest.mark.parametrize("row", [{}, {"text": 7}, {"prompt": "x"}])
def test_rows_that_are_no_documents_are_refused_with_their_line(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    with pytest.raises(Misuse, match=r"x\.jsonl:2: text: "):
        read_documents(rows(tmp_path / "x.jsonl", {"text": "a"}, row))


def test_files_that_cannot_be_used_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="cannot be read"):
        main(str(folder), tmp_path / "nowhere.txt", tmp_path / "out")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(Misuse, match="cannot be read as text"):
        main(str(folder), tmp_path / "bad.txt", tmp_path / "out")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(Misuse, match="holds no rows"):
        main(str(folder), tmp_path / "empty.jsonl", tmp_path / "out")
    (tmp_path / "one.txt").write_text("a")
    with pytest.raises(Misuse, match="no token"):
        main(str(folder), tmp_path / "one.txt", tmp_path / "out")
