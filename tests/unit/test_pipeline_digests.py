"""Hashes that decide whether a stage runs again: of contents, not of dates; nothing is read twice
or missed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from gradus.errors import Misuse
from trainer.pipeline.digests import (
    compute_digest,
    compute_file_digests,
    compute_named_digest,
    compute_run_digest,
)


def test_a_file_s_hash_is_the_one_that_everybody_computes(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    assert compute_digest(file) == hashlib.sha256(b"abc").hexdigest()


def test_a_folder_changes_with_the_names_and_contents_in_it_and_with_nothing_else(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "m"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_text("1")
    seen = [compute_digest(folder)]
    os.utime(folder / "deep" / "a", ns=(1, 1))
    (folder / ".lock").write_text("held")
    assert compute_digest(folder) == seen[0]
    (folder / "deep" / "a").write_text("22")
    seen.append(compute_digest(folder))
    (folder / "deep" / "a").rename(folder / "deep" / "b")
    seen.append(compute_digest(folder))
    (folder / "deep" / "b").unlink()
    seen.append(compute_digest(folder))
    assert len({*seen}) == 4


def test_what_was_read_is_not_read_again_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    first = compute_digest(file)
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", None)
        assert compute_digest(file) == first
    file.write_text("22")
    assert compute_digest(file) == hashlib.sha256(b"22").hexdigest()


def test_of_a_run_only_its_records_are_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("1")
    (tmp_path / "checkpoint-1").mkdir()
    before = compute_run_digest(str(tmp_path))
    (tmp_path / "checkpoint-1" / "optimizer.pt").write_text("1")
    assert compute_run_digest(str(tmp_path)) == before
    (tmp_path / "metrics.jsonl").write_text("22")
    assert compute_run_digest(str(tmp_path)) != before
    assert compute_run_digest(str(tmp_path / "no")) is None


@pytest.mark.parametrize(
    "text", ["", "no/such/file", "Qwen/Qwen2.5-0.5B", "demo:ocaml", "a\0b", "x" * 5000]
)
def test_what_is_no_file_has_no_hash(text: str) -> None:
    assert compute_named_digest(text) is None


def test_a_link_in_a_circle_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert "a" in compute_file_digests(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no_such: cannot be read"):
        compute_digest(tmp_path / "no_such")
