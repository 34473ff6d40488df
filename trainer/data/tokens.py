"""Streams of tokens for training on plain text: read from packed files, or made of texts and kept
in the run folder.

Files stay on disk and are mapped, whatever their size. How streams are cut into blocks is
`trainer.stages.pretrain`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gradus.errors import Misuse
from gradus.row_reader import SUFFIXES
from trainer.config.stages import TokenSource
from trainer.data.tasks import read_rows

Ids = npt.NDArray[Any]

PACKED = ".npy"
TYPES = (np.dtype("uint16"), np.dtype("uint32"))
TEXTS = (".txt", *SUFFIXES)
CHUNK = 1 << 22
"""Tokens looked at or written at once."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Tokens of several files, one after another."""

    parts: tuple[Ids, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def take(self, start: int, end: int) -> Stream:
        """Return the stream from one place to another; nothing is read."""
        slices = []
        at = 0
        for part in self.parts:
            inside = part[max(start - at, 0) : max(end - at, 0)]
            if len(inside):
                slices.append(inside)
            at += len(part)
        return Stream(tuple(slices))

    def read(self, start: int, end: int) -> Ids:
        """Return the tokens from one place to another."""
        parts = self.take(start, end).parts
        return np.concatenate(parts) if parts else np.empty(0, dtype=TYPES[0])


@dataclass(frozen=True, slots=True)
class Tokens:
    """What to train on and what to measure on."""

    train: Stream
    held_out: Stream
    held_out_from: int
    """Where the second begins, when both are one stream; the end of the first otherwise."""

    def count_blocks(self, length: int) -> int:
        """Whole blocks of this length to train on."""
        return self.held_out_from // length


def load_tokens(config: TokenSource, folder: Path, tokenizer: Any, vocabulary: int) -> Tokens:
    """Return the tokens of a run; those of texts are kept in `folder`.

    Raises Misuse naming the file, and the place in it where there is one.
    """
    train = _load_stream(config, config.dataset, folder / "tokens.train.npy", tokenizer, vocabulary)
    if config.eval_dataset:
        other = _load_stream(
            config, config.eval_dataset, folder / "tokens.eval.npy", tokenizer, vocabulary
        )
        tokens = Tokens(train, other, len(train))
    else:
        cut = len(train) - round(config.held_out * len(train))
        tokens = Tokens(train, train.take(cut, len(train)), cut)
    if tokens.count_blocks(config.longest) < 1:
        raise Misuse(
            f"{', '.join(config.dataset)}: {tokens.held_out_from:,} tokens to train on are less"
            f" than one block of {config.longest:,}"
        )
    measures = bool(config.eval_dataset) or config.held_out > 0
    if measures and len(tokens.held_out) < config.longest:
        raise Misuse(
            f"data.{'eval_dataset' if config.eval_dataset else 'held_out'}:"
            f" {len(tokens.held_out):,} tokens to measure on are less than one block of"
            f" {config.longest:,}"
        )
    return tokens


def describe(config: TokenSource) -> str:
    """Return what is there, without reading it all. Raises Misuse for what is not."""
    files = list(_list_files(config.dataset)) + list(_list_files(config.eval_dataset))
    packed = sum(len(_map_file(file)) for file in files if file.suffix == PACKED)
    texts = [file for file in files if file.suffix != PACKED]
    return f"{packed:,} packed tokens" + (f", {len(texts)} files of text" if texts else "")


def _load_stream(
    config: TokenSource, names: Sequence[str], cache_path: Path, tokenizer: Any, vocabulary: int
) -> Stream:
    parts, texts = [], []
    for name in names:
        for file in _list_files([name]):
            if file.suffix == PACKED:
                parts.append(_map_checked_file(file, vocabulary))
            else:
                texts.append(str(file))
    if texts:
        parts.append(_encode_texts(config, texts, cache_path, tokenizer))
    return Stream(tuple(parts))


def _list_files(names: Iterable[str]) -> Iterator[Path]:
    """Yield files as they are, the files of folders by name, and names that are neither as the
    hub's.

    In a folder `*.rejected.jsonl` is left out: what `gradus tasks texts` writes beside its result.
    """
    for name in names:
        path = Path(name)
        if not path.is_dir():
            yield path
            continue
        candidates = (file for file in path.iterdir() if file.suffix in (PACKED, *TEXTS))
        inside = sorted(file for file in candidates if not file.name.endswith(".rejected.jsonl"))
        if not inside:
            raise Misuse(f"{name}: holds no file of {', '.join((PACKED, *TEXTS))}")
        yield from inside


# ---------------------------------------------------------------------- packed files


def _map_file(file: Path) -> Ids:
    try:
        ids = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise Misuse(
            f"{file}: cannot be read as packed tokens: {str(error).splitlines()[0]}"
        ) from None
    if not isinstance(ids, np.ndarray) or ids.dtype not in TYPES or ids.ndim not in (1, 2):
        if isinstance(ids, np.ndarray):
            form = f"{ids.dtype} in {ids.ndim} dimensions"
        else:
            form = "no array"
        raise Misuse(
            f"{file}: packed tokens are uint16 or uint32 in one dimension or two; this is {form}"
        )
    if ids.size == 0:
        raise Misuse(f"{file}: holds no tokens")
    return ids.reshape(-1)


def _map_checked_file(file: Path, vocabulary: int) -> Ids:
    """Return the tokens of a file, each of which the model has a row for."""
    ids = _map_file(file)
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        if int(chunk.max()) >= vocabulary:
            at = start + int(np.argmax(chunk >= vocabulary))
            raise Misuse(
                f"{file}: token {at:,} is {int(ids[at]):,}, and the model knows {vocabulary:,}"
                " tokens only"
            )
    return ids


# ------------------------------------------------------------------------------------------- texts


def read_texts(config: TokenSource, names: Sequence[str]) -> Iterator[str]:
    """Yield the texts of files and of the hub. Raises Misuse naming file and line."""
    for name in names:
        if Path(name).suffix == ".txt":
            yield _read_text(Path(name))
            continue
        yield from (row.text(config.text_column) for row in read_rows(name, config.split))


def _read_text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Misuse(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Misuse(f"{file}: is not UTF-8 text, at byte {error.start}") from None
    if not text.strip():
        raise Misuse(f"{file}: holds no text")
    return text


def _encode_texts(
    config: TokenSource, names: Sequence[str], cache_path: Path, tokenizer: Any
) -> Ids:
    """Return tokens of texts, each closed by the end-of-text token; a file that holds them already
    is taken."""
    file_stats = []
    for name in names:
        if Path(name).exists():
            file_stats.append((name, Path(name).stat().st_size, Path(name).stat().st_mtime_ns))
    inputs = [list(names), config.split, config.text_column, tokenizer.get_vocab(), file_stats]
    made_of = hashlib.sha256(
        json.dumps(inputs, sort_keys=True).encode(errors="replace")
    ).hexdigest()
    cache_path = cache_path.with_stem(f"{cache_path.stem}.{made_of[:16]}")
    if not cache_path.exists():
        wide = TYPES[0] if len(tokenizer) <= np.iinfo(TYPES[0]).max else TYPES[1]
        end = [tokenizer.eos_token_id]
        texts = (
            tokenizer(text, add_special_tokens=False)["input_ids"]
            for text in read_texts(config, names)
        )
        ids = [np.asarray(part + end, dtype=wide) for part in texts]
        half_written = cache_path.with_name(cache_path.name + ".partial.npy")
        np.save(half_written, np.concatenate(ids))
        half_written.rename(cache_path)
    return _map_file(cache_path)
