"""Streams of tokens and the curriculum: what is trained on in which order, and which files are
refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradus.errors import Misuse
from trainer.config.stages import Phase, TokenSource
from trainer.data.tokens import Stream, Tokens, describe, load_tokens, read_texts

pytestmark = pytest.mark.training

VOCABULARY = 300


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from trainer.config.run import FreshModel
    from trainer.models.fresh import train_tokenizer

    return train_tokenizer(["let f x = x + 1"], FreshModel(vocab_size=VOCABULARY))


def source(*datasets: Path | str, **more: Any) -> TokenSource:
    phases = [Phase(length=4, steps=3), Phase(length=8, steps=2)]
    return TokenSource(dataset=list(map(str, datasets)), **{"curriculum": phases, **more})


def packed(file: Path, ids: Any, dtype: str = "uint16") -> Path:
    np.save(file, np.asarray(ids, dtype=dtype))
    return file


def loaded(config: TokenSource, folder: Path, tokenizer: Any) -> Tokens:
    return load_tokens(config, folder, tokenizer, VOCABULARY)


# ------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("dtype", "shape"), [("uint16", (40,)), ("uint32", (40,)), ("uint16", (5, 8))]
)
def test_packed_files_of_both_widths_and_shapes_are_one_stream(
    dtype: str, shape: tuple[int, ...], tmp_path: Path, tokenizer: Any
) -> None:
    tokens = loaded(
        source(packed(tmp_path / "a.npy", np.arange(40).reshape(shape), dtype)), tmp_path, tokenizer
    )
    assert tokens.train.read(0, 40).tolist() == list(range(40))


def test_files_of_a_folder_follow_each_other_by_name(tmp_path: Path, tokenizer: Any) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    packed(folder / "b.npy", range(10, 20))
    packed(folder / "a.npy", range(10))
    (folder / "texts.rejected.jsonl").write_text('{"reasons": ["again"]}\n')
    tokens = loaded(source(folder), tmp_path, tokenizer)
    assert tokens.train.read(6, 14).tolist() == [6, 7, 8, 9, 10, 11, 12, 13]


def test_the_end_of_the_stream_is_held_out(tmp_path: Path, tokenizer: Any) -> None:
    tokens = loaded(
        source(packed(tmp_path / "a.npy", range(100)), held_out=0.2), tmp_path, tokenizer
    )
    assert (tokens.held_out_from, tokens.count_blocks(8)) == (80, 10)
    assert tokens.held_out.read(0, 1000).tolist() == list(range(80, 100))


def test_what_is_measured_on_may_be_a_file_of_its_own(tmp_path: Path, tokenizer: Any) -> None:
    other = packed(tmp_path / "b.npy", range(50, 60))
    tokens = loaded(
        source(packed(tmp_path / "a.npy", range(20)), eval_dataset=[str(other)]),
        tmp_path,
        tokenizer,
    )
    assert (tokens.held_out_from, tokens.held_out.read(0, 3).tolist()) == (20, [50, 51, 52])


def test_too_little_to_measure_on_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    file = packed(tmp_path / "a.npy", range(100))
    with pytest.raises(
        Misuse, match=r"data.held_out: 5 tokens to measure on are less than one block of 8"
    ):
        loaded(source(file, held_out=0.05), tmp_path, tokenizer)
    with pytest.raises(
        Misuse, match=r"data.eval_dataset: 3 tokens to measure on are less than one block of 8"
    ):
        loaded(
            source(file, eval_dataset=[str(packed(tmp_path / "b.npy", [1, 2, 3]))]),
            tmp_path,
            tokenizer,
        )


def test_texts_become_tokens_with_an_end_after_each_and_are_made_once(
    tmp_path: Path, tokenizer: Any
) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in ("let x = 1", "let y = 2"))
    )
    tokens = loaded(source(file), tmp_path, tokenizer)
    everything = tokens.train.read(0, len(tokens.train)).tolist()
    assert tokenizer.decode(everything) == "let x = 1<|im_end|>let y = 2<|im_end|>"
    [made] = tmp_path.glob("tokens.train.*.npy")
    written = made.stat().st_mtime_ns
    loaded(source(file), tmp_path, tokenizer)
    assert made.stat().st_mtime_ns == written
    file.write_text(json.dumps({"text": "let z = 3 and so on"}) + "\n")
    again = loaded(source(file), tmp_path, tokenizer)
    assert tokenizer.decode(again.train.read(0, 100).tolist()) == "let z = 3 and so on<|im_end|>"


def test_a_description_reads_no_tokens(tmp_path: Path) -> None:
    file = packed(tmp_path / "a.npy", [9999] * 10)
    (tmp_path / "b.txt").write_text("x")
    assert describe(source(file, tmp_path / "b.txt")) == "10 packed tokens, 1 files of text"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.npy", np.arange(40, dtype="int64"), "uint16 or uint32 in one dimension or two; this is int64"),  # noqa: E501
        ("a.npy", np.zeros((2, 2, 20), dtype="uint16"), "this is uint16 in 3 dimensions"),
        ("a.npy", np.zeros(0, dtype="uint16"), "holds no tokens"),
        ("a.npy", np.array([1] * 30 + [300] + [2] * 30, dtype="uint16"), "token 30 is 300, and the model knows 300"),  # noqa: E501
        ("a.npy", np.arange(7, dtype="uint16"), "7 tokens to train on are less than one block of 8"),  # noqa: E501
        ("a.npy", np.array([{"a": 1}], dtype=object), "cannot be read as packed tokens"),
        ("a.npy", b"", "cannot be read as packed tokens"),
        ("a.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<u2', 'fortran_order': False, 'shape': (999,), }\n", "cannot be"),  # noqa: E501
        ("a.npy", None, "cannot be read as packed tokens"),
        ("a.txt", None, "cannot be read: No such file"),
        ("a.txt", b"  \n", "holds no text"),
        ("a.txt", b"ok \xff", "is not UTF-8 text, at byte 3"),
        ("a.jsonl", b'{"text": "x"}\n{"txt": "y"}\n', ":2: text: is missing or empty"),
        ("a.jsonl", b'{"text": "x"}\n{"text": 3}\n', ":2: text: is not a text"),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', ":2: is not JSON"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_by_name_and_place(
    name: str, content: Any, says: str, tmp_path: Path, tokenizer: Any
) -> None:
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        np.save(file, content, allow_pickle=True)
    with pytest.raises(Misuse, match=re.escape(says)) as caught:
        loaded(source(file), tmp_path, tokenizer)
    assert str(file) in str(caught.value)


def test_a_folder_without_files_of_tokens_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(Misuse, match=r"empty: holds no file of .npy, .txt"):
        loaded(source(tmp_path / "empty"), tmp_path, tokenizer)


def test_another_column_may_hold_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("body\nlet x = 1\n")
    config = source(tmp_path / "a.csv", text_column="body")
    assert list(read_texts(config, config.dataset)) == ["let x = 1"]


# ---------------------------------------------------------------------- curriculum


def curriculum(
    count: int, phases: list[tuple[int, int]], samples_per_step: int, seed: int = 1
) -> Any:
    from trainer.stages.pretrain import Curriculum

    stream = Stream((np.arange(count, dtype="uint16"),))
    told = [Phase(length=length, steps=steps) for length, steps in phases]
    return Curriculum(Tokens(stream, Stream(()), count), told, samples_per_step, seed)


def test_each_step_has_blocks_of_its_phases_length() -> None:
    made = curriculum(96, [(4, 3), (8, 2)], samples_per_step=6)
    assert [len(made[n]["input_ids"]) for n in range(len(made))] == [4] * 18 + [8] * 12
    assert [made.find_phase(step).length for step in range(1, 6)] == [4, 4, 4, 8, 8]


def test_a_pass_sees_every_block_once_and_the_next_one_in_another_order() -> None:
    made = curriculum(48, [(4, 4)], samples_per_step=6)
    starts = [int(made[n]["input_ids"][0]) for n in range(24)]
    assert sorted(starts[:12]) == sorted(starts[12:]) == list(range(0, 48, 4))
    assert starts[:12] != starts[12:]


def test_the_order_is_the_seeds_and_does_not_depend_on_what_was_read_before() -> None:
    one, other, third = (curriculum(400, [(4, 10), (8, 5)], 6, seed) for seed in (1, 1, 2))
    backwards = {n: other[n]["input_ids"].tolist() for n in reversed(range(len(other)))}
    assert all(one[n]["input_ids"].tolist() == backwards[n] for n in range(len(one)))
    assert [one[n]["input_ids"].tolist() for n in range(20)] != [
        third[n]["input_ids"].tolist() for n in range(20)
    ]
