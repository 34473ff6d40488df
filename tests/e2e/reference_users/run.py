"""Follow one guide by hand: `python -m tests.e2e.reference_users.run ocamler_grpo FOLDER`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tests.e2e.reference_users.user import User
from tests.ports import free_port

if __name__ == "__main__":
    name = sys.argv[1]
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True)
    user: User = importlib.import_module(f"tests.e2e.reference_users.{name}").USER
    user.follow(folder.resolve(), free_port(), free_port())
