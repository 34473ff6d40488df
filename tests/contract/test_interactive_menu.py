"""`gradus` without a word: on a terminal it asks and runs what was chosen, without one it shows
help."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradus.cli import check_words
from gradus.interactive import MenuItem, load_menu

SOON_S = 100.0


class Terminal:
    """`gradus` on a terminal of its own, which is typed into and read."""

    def __init__(self, *words: str) -> None:
        self.said = ""
        self.process, self._end = self._started(words)

    @staticmethod
    def _started(words: tuple[str, ...]) -> tuple[int, int]:
        process, end = pty.fork()
        if process == 0:
            os.environ.update(COLUMNS="120", TERM="dumb")
            os.execv(sys.executable, [sys.executable, "-m", "gradus", *words])
        return process, end

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def reads(self, text: str) -> None:
        """Wait until the text is there, after what was read before."""
        give_up_at = time.monotonic() + SOON_S
        while text not in self.said:
            assert time.monotonic() < give_up_at, f"{text!r} does not come after:\n{self.said}"
            if not self._more():
                assert text in self.said, f"it ended before {text!r}:\n{self.said}"
        self.said = self.said.partition(text)[2]

    def _more(self) -> bool:
        if select.select([self._end], [], [], 1)[0]:
            try:
                self.said += os.read(self._end, 65536).decode(errors="replace")
            except OSError:  # how a terminal says that nobody is at its other end
                return False
        return True

    def ended(self, keys: str = "") -> int:
        """The exit status. `keys`: typed again after each silent second, because Python does not
        notice a signal that comes in the instant between its last look for signals and the start of
        a read."""
        give_up_at = time.monotonic() + SOON_S
        before = self.said
        while self._more():
            if keys and self.said == before:  # a second without a word
                self.type(keys)
            before = self.said
            assert time.monotonic() < give_up_at, f"it does not end:\n{self.said}"
        _, status = os.waitpid(self.process, 0)
        os.close(self._end)
        self.process = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            os.close(self._end)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


def test_what_is_chosen_is_asked_for_printed_and_run(terminal: Terminal, tmp_path: Path) -> None:
    pipeline = tmp_path / "toy.yaml"
    pipeline.write_text(
        f"{{name: toy, folder: {tmp_path}/out, stages: {{a: {{kind: command, run: ['true']}}}}}}"
    )
    terminal.reads("9  pipeline")
    terminal.reads("What shall it be?")
    terminal.type("9\n")
    terminal.reads("demo.yaml")
    terminal.reads("Which pipeline?")
    terminal.type(f"{tmp_path}/none.yaml\n")
    terminal.reads("there is no")
    terminal.type(f"{pipeline}\n")
    terminal.reads(f"$ gradus pipeline run {pipeline}")
    terminal.reads("all 1 stages are done")
    assert terminal.ended() == 0


def test_a_number_that_is_not_offered_is_asked_again(terminal: Terminal) -> None:
    for answer in ("0", "99", "99999999999999999999", "-1", "", "²", "--help", "trai"):
        terminal.reads("What shall it be?")
        terminal.type(answer + "\n")
        terminal.reads("to choose")
    terminal.reads("What shall it be?")
    terminal.type("train\n")
    terminal.reads("Which configuration?")
    terminal.type("--resume\n")
    terminal.reads("there is no --resume")


@pytest.mark.parametrize("keys", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_whoever_wants_nothing_gets_out(terminal: Terminal, keys: str) -> None:
    terminal.reads("What shall it be?")
    terminal.type(keys)
    assert terminal.ended(keys) == 130
    assert "Traceback" not in terminal.said


def test_help_on_a_terminal_is_help() -> None:
    terminal = Terminal("--help")
    try:
        terminal.reads("Usage")
        assert terminal.ended() == 0
    finally:
        terminal.close()


def test_without_a_terminal_there_is_help_and_no_question() -> None:
    command = [sys.executable, "-m", "gradus"]
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SOON_S,
        check=False,
    )
    assert ended.returncode == 2
    assert "Usage" in ended.stdout + ended.stderr
    assert "What shall it be?" not in ended.stdout


@pytest.mark.parametrize("offer", load_menu(), ids=[offer.name for offer in load_menu()])
def test_every_offer_is_a_command_that_there_is(offer: object) -> None:
    assert isinstance(offer, MenuItem)
    words = offer.command([question.default or "x" for question in offer.questions])
    if not Path(words[0]).is_absolute():
        check_words(words)


@pytest.mark.parametrize(
    ("name", "answers", "command"),
    [
        (
            "quick",
            ("sft", "openai-community/gpt2", "alpaca.jsonl", "standard"),
            "train sft --model openai-community/gpt2 --dataset alpaca.jsonl --preset standard",
        ),
        (
            "sample",
            ("runs/a/final", "prompts.jsonl"),
            "sample runs/a/final prompts.jsonl --metrics",
        ),
        ("chat", ("runs/a/final",), "chat runs/a/final"),
        ("merge", ("runs/a",), "merge runs/a"),
    ],
)
def test_the_menu_has_what_the_menu_of_autotune_has(
    name: str, answers: tuple[str, ...], command: str
) -> None:
    """The commands of docs/guides/from_autotune.md that need no file of settings."""
    (offer,) = (offer for offer in load_menu() if offer.name == name)
    assert len(offer.questions) == len(answers)
    assert " ".join(offer.command(answers)) == command
