"""Users of the five reference systems get through with their own data and the commands of the
guide."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.e2e.reference_users.user import ROOT, User
from tests.ports import free_port

pytestmark = pytest.mark.training

NAMES = ["ocamler_grpo", "rust_pipeline", "grpo_for_scrum", "autotune", "fine_tune_llm_rl"]
USERS: dict[str, User] = {
    name: importlib.import_module(f"tests.e2e.reference_users.{name}").USER for name in NAMES
}


def test_every_guide_has_its_user() -> None:
    assert {user.page for user in USERS.values()} == set(
        (ROOT / "docs" / "guides").glob("from_*.md")
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_guide_is_held_to_its_script(name: str) -> None:
    """Whatever the guide says to run is run, or its script says why not; the script has nothing
    else."""
    user = USERS[name]
    assert len([command for command in user.commands() if user.is_run(command)]) >= 6
    assert user.unused() == []
    assert all(len(reason) > 20 for reason in user.not_run.values())


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_a_user_gets_through_the_guide(name: str, tmp_path: Path) -> None:
    USERS[name].follow(tmp_path, free_port(), free_port())
