"""The Lua scripts of `services/broker/lua`: idempotent, with keys, arguments and reply in their headers."""

from __future__ import annotations

import hashlib
from pathlib import Path

LUA = Path(__file__).parents[1] / "lua"


class Script:
    """A Lua script, sent in full only to a Redis that has not seen it."""

    def __init__(self, name: str, *, prelude: str = "", at_maxmemory: bool = True) -> None:
        """`prelude`: another file, of functions, that is joined in front.

        `at_maxmemory`: Redis runs it at its memory limit too; else Redis refuses it there before its first write.
        """
        self.name = name
        self.flags = "allow-oom" if at_maxmemory else ""
        self.body = "".join((LUA / f"{part}.lua").read_text("utf-8") for part in (prelude, name) if part)
        self.text = f"#!lua flags={self.flags}\n{self.body}" if self.flags else f"#!lua\n{self.body}"
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self.function = f"gradus_{name}_{self.sha[:8]}"
        """Its name as a Redis function: functions of two releases can be loaded beside each other."""


OPEN_INBOX, ADMIT, SUBMIT = Script("open_inbox"), Script("admit"), Script("submit", at_maxmemory=False)
LOOK_UP, CANCEL = Script("look_up"), Script("cancel")
CREATE_GROUP, TAKE, RECLAIM = Script("create_group"), Script("take"), Script("reclaim", prelude="history")
RENEW, FINISH, RELEASE = Script("renew"), Script("finish"), Script("release", prelude="history")
HEARTBEAT, DEPTH, STATS, SHORTEN = Script("heartbeat"), Script("depth"), Script("stats"), Script("shorten")
UNFINISHED, REVOKE = Script("unfinished"), Script("revoke")


def library() -> str:
    """All scripts as one library of Redis functions, for `FUNCTION LOAD REPLACE` by an administrator."""
    scripts = [one for one in globals().values() if isinstance(one, Script)]
    release = hashlib.sha1("".join(one.sha for one in scripts).encode(), usedforsecurity=False).hexdigest()[:8]
    parts = [f"#!lua name=gradus_{release}\n"]
    for one in scripts:
        flags = f"'{one.flags}'" if one.flags else ""
        head = (
            f"redis.register_function{{function_name='{one.function}', flags={{{flags}}}, callback=function(KEYS, ARGV)"
        )
        parts.append(f"{head}\n{one.body}\nend}}\n")
    return "".join(parts)
