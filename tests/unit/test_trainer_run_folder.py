"""The run folder: whole and torn checkpoints, log lines after a crash, one run at a time."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gradus.errors import Misuse
from trainer.runs.folder import (
    RunFolder,
    append_lines,
    drop_lines_after,
    find_resume_checkpoint,
    read_lines,
    replace_nonfinite,
)


def archive(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("data.pkl", b"x" * 1000)


def make_checkpoint(folder: Path, step: int) -> Path:
    """Files of the right outer form: what is looked at is whether they are whole."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 16)
    for name in ("optimizer.pt", "scheduler.pt"):
        archive(path / name)
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": step / 10}))
    return path


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def test_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        make_checkpoint(tmp_path, step)
    assert find_resume_checkpoint(tmp_path, "auto", print) == tmp_path / "checkpoint-100"
    assert find_resume_checkpoint(tmp_path, "never", print) is None


@pytest.mark.parametrize("how", [cut, Path.unlink])
def test_a_half_written_checkpoint_is_passed_over_with_a_message(
    tmp_path: Path, how: Callable[[Path], object]
) -> None:
    whole = make_checkpoint(tmp_path, 20)
    torn = make_checkpoint(tmp_path, 40)
    how(torn / "trainer_state.json")
    said: list[str] = []
    assert find_resume_checkpoint(tmp_path, "auto", said.append) == whole
    assert said[0].startswith("skipping checkpoint-40: ")


def test_a_given_checkpoint_must_be_whole(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path, 20)
    assert find_resume_checkpoint(tmp_path, str(path), print) == path
    (path / "optimizer.pt").unlink()
    with pytest.raises(Misuse, match="it has no optimizer states"):
        find_resume_checkpoint(tmp_path, str(path), print)
    with pytest.raises(Misuse, match="there is no such folder"):
        find_resume_checkpoint(tmp_path, str(tmp_path / "nowhere"), print)


def make_sharded(folder: Path, layout: str, step: int) -> Path:
    """A checkpoint as transformers 5.19 leaves it with FSDP or DeepSpeed 0.19, of two processes."""
    path = make_checkpoint(folder, step)
    (path / "optimizer.pt").unlink()
    if layout == "fsdp whole":
        for name in ("pytorch_model_fsdp.bin", "optimizer.bin"):
            archive(path / name)
    elif layout == "fsdp sharded":
        (path / "model.safetensors").unlink()
        for name in ("pytorch_model_fsdp_0", "optimizer_0"):
            (path / name).mkdir()
            (path / name / ".metadata").write_bytes(b"x")
    else:
        for rank in (0, 1):
            archive(path / "global_step20" / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        archive(path / "global_step20" / "mp_rank_00_model_states.pt")
        (path / "latest").write_text("global_step20")
    return path


@pytest.mark.parametrize("layout", ["fsdp whole", "fsdp sharded", "deepspeed"])
def test_checkpoints_of_fsdp_and_deepspeed_are_whole_once_the_state_is_written(
    tmp_path: Path, layout: str
) -> None:
    whole = make_sharded(tmp_path, layout, 20)
    assert find_resume_checkpoint(tmp_path, "auto", print) == whole
    (whole / "trainer_state.json").unlink()
    assert find_resume_checkpoint(tmp_path, "auto", print) is None


def test_a_run_that_begins_anew_keeps_the_logs_of_the_earlier_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.drop_after(0) is None
    append_lines(folder.metrics, [{"step": 1}, {"step": 2}])
    folder.evaluations.mkdir()
    for name in ("before", "step-2"):
        (folder.evaluations / f"{name}.json").touch()
    assert folder.drop_after(0) == tmp_path / "previous-1"
    assert [line["step"] for line in read_lines(tmp_path / "previous-1" / "metrics.jsonl")] == [
        1,
        2,
    ]
    assert not folder.metrics.exists()
    assert [file.stem for file in folder.evaluations.iterdir()] == ["before"]


def test_lines_of_steps_to_be_done_again_are_dropped_and_torn_ones_too(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    append_lines(file, [{"step": step} for step in range(1, 6)])
    with file.open("a") as handle:
        handle.write('{"step": 3, "torn')
    drop_lines_after(file, 3)
    append_lines(file, [{"step": 4}])
    assert [line["step"] for line in read_lines(file)] == [1, 2, 3, 4]


def test_measurements_of_steps_to_be_done_again_are_dropped(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.evaluations.mkdir()
    for name in ("before", "step-20", "step-40", "after"):
        (folder.evaluations / f"{name}.json").touch()
    folder.drop_after(20)
    assert sorted(file.stem for file in folder.evaluations.iterdir()) == ["before", "step-20"]


def test_lines_hold_what_json_has_words_for(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    record = {
        "nan": float("nan"),
        "list": [float("inf"), 1.5],
        "text": "é\u2028\n\ud800",
        "tuple": (1,),
    }
    append_lines(file, [record])
    assert file.read_bytes().count(b"\n") == 1
    assert read_lines(file) == [
        {"nan": None, "list": [None, 1.5], "text": "é\u2028\n\ud800", "tuple": [1]}
    ]
    assert replace_nonfinite({1: {"a": float("-inf")}}) == {"1": {"a": None}}


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    refused = pytest.raises(Misuse, match="another run is writing here")
    with RunFolder(tmp_path).locked(), refused, RunFolder(tmp_path).locked():
        pass
    with RunFolder(tmp_path).locked():
        pass


def test_starting_anew_sets_the_old_run_aside(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.locked():
        assert folder.set_aside() is None
        for number in (1, 2):
            folder.metrics.write_text("x")
            make_checkpoint(tmp_path, 5)
            assert folder.set_aside() == tmp_path / f"previous-{number}"
            assert not folder.metrics.exists()
    assert (tmp_path / "previous-2" / "checkpoint-5").is_dir()
    shutil.rmtree(tmp_path / "previous-1")
