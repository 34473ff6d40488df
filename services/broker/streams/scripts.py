"""The Lua scripts of `services/broker/lua`: idempotent, with keys, arguments and reply in their
headers."""

from __future__ import annotations

import hashlib
from pathlib import Path

LUA = Path(__file__).parents[1] / "lua"


class Script:
    """A Lua script that Redis keeps as a function, so that its callers need no right to run any
    other script."""

    def __init__(self, name: str, *preludes: str, at_maxmemory: bool = True) -> None:
        """`preludes`: other files, of functions, that are joined in front, behind partition.lua.

        `at_maxmemory`: Redis runs it at its memory limit too; else Redis refuses it there before
        its first write.
        """
        self.name = name
        self.flags = "'allow-oom'" if at_maxmemory else ""
        parts = ("partition", *preludes, name)
        self.body = "".join((LUA / f"{part}.lua").read_text("utf-8") for part in parts)

    @property
    def function(self) -> str:
        """Its name in Redis, where names are unique over all libraries."""
        return f"gradus_{self.name}_{VERSION}"


OPEN_INBOX, ADMIT, SUBMIT = (
    Script("open_inbox"),
    Script("admit", "bound"),
    Script("submit", "bound", "runs", at_maxmemory=False),
)
LOOK_UP, CANCEL = Script("look_up"), Script("cancel", "runs")
CREATE_GROUP, TAKE, RECLAIM = (
    Script("create_group"),
    Script("take", "runs"),
    Script("reclaim", "history"),
)
RENEW, FINISH = Script("renew", "history"), Script("finish")
RELEASE = Script("release", "history")
HEARTBEAT, WORKERS = Script("heartbeat"), Script("workers")
DEPTH, STATS, SHORTEN = Script("depth"), Script("stats"), Script("shorten")
UNFINISHED, REVOKE = Script("unfinished"), Script("revoke", "runs")
KEEP_JOB = Script("keep_job")
ALL = [script for script in globals().values() if isinstance(script, Script)]
VERSION = hashlib.sha1(
    "".join(script.flags + script.body for script in ALL).encode(), usedforsecurity=False
).hexdigest()[:8]
"""Hash of all scripts: the functions of several releases lie beside each other in one Redis."""


def build_library() -> str:
    """Return all scripts as one library of Redis functions, for `FUNCTION LOAD REPLACE`."""
    return f"#!lua name=gradus_{VERSION}\n" + "".join(
        f"redis.register_function{{function_name='{script.function}', flags={{{script.flags}}}, "
        f"callback=function(KEYS, ARGV)\n{script.body}\nend}}\n"
        for script in ALL
    )
