"""Signals while `gradus train` still imports what it needs: the run ends, as asked, before it
trains."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.runs.signals import StopRequested, StopWish, defer_signals

pytestmark = pytest.mark.training

SIGNALLED_IN_AN_IMPORT = """
import os, sys

class SwallowsAll:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            try:
                for _ in range({times}):
                    os.kill(os.getpid(), {number})
                [None for _ in range(1000)]  # where Python runs the handler
            except BaseException:
                pass

sys.meta_path.insert(0, SwallowsAll())
from gradus.cli import main
main()
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A run that would wait for a grader: it must not come that far."""
    task = {"id": "t", "prompt": "(* add 1 *)", "tests": "let () = assert (f 1 = 2)", "kind": "add"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    settings = {
        "model": {"name": "fresh:qwen3"},
        "data": {"dataset": str(tmp_path / "tasks.jsonl")},
        "reward": {"grader": "ocaml", "urls": "http://127.0.0.1:9"},
        "grpo": {"num_generations": 2, "per_device_train_batch_size": 2},
        "output_dir": str(tmp_path / "run"),
    }
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(settings))
    return path


def signalled_while_importing(
    config: Path, module: str, number: int, times: int = 1
) -> tuple[int, str]:
    """Exit status and standard error of a run that gets signals while it imports that module, which
    swallows all."""
    program = SIGNALLED_IN_AN_IMPORT.format(module=module, number=int(number), times=times)
    command = [sys.executable, "-c", program, "train", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return ended.returncode, ended.stderr


def test_a_signal_during_imports_ends_the_run_before_it_trains(
    config: Path, tmp_path: Path
) -> None:
    status, said = signalled_while_importing(config, "transformers", signal.SIGINT)
    assert status == 128 + signal.SIGINT, said
    assert "stopped by SIGINT. No step was " in said
    assert "Traceback" not in said
    assert not (tmp_path / "run" / "config.resolved.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_imports_is_noted_when_they_are_over(number: signal.Signals) -> None:
    wish = StopWish()
    with wish.handle_signals():
        with defer_signals():
            signal.raise_signal(number)
            assert wish.signal_number is None
        with pytest.raises(StopRequested, match=f"stopped by {number.name}"):
            wish.raise_if_made()


@pytest.mark.slow
def test_a_second_signal_during_imports_ends_the_run_at_once(config: Path) -> None:
    status, said = signalled_while_importing(config, "trl", signal.SIGTERM, times=2)
    assert (status, "Traceback" in said) == (128 + signal.SIGTERM, False)
    assert "stopped by" not in said


def test_signals_at_once_are_one_and_a_later_one_stops_without_saving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    wish = StopWish(lines.append)
    with wish.handle_signals():
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        assert wish.signal_number == signal.SIGTERM
        assert len(lines) == 1
        monkeypatch.setattr("trainer.runs.signals.DUPLICATE_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
