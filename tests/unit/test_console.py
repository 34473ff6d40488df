"""What commands show while they work: a label on a terminal, nothing in files and pipes."""

from __future__ import annotations

import pytest

from gradus.console import show_start


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_start_of_a_grader_is_shown_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(is_terminal)))
    with show_start("ocaml"):
        pass
    printed = capsys.readouterr()
    assert ("starting the grader ocaml" in printed.err) is is_terminal
    assert printed.out == ""
