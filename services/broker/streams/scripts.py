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
        flags = "#!lua flags=allow-oom\n" if at_maxmemory else "#!lua\n"
        self.text = flags + "".join((LUA / f"{part}.lua").read_text("utf-8") for part in (prelude, name) if part)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


OPEN_INBOX, ADMIT, SUBMIT = Script("open_inbox"), Script("admit"), Script("submit", at_maxmemory=False)
LOOK_UP, CANCEL = Script("look_up"), Script("cancel")
CREATE_GROUP, TAKE, RECLAIM = Script("create_group"), Script("take"), Script("reclaim", prelude="history")
RENEW, FINISH, RELEASE = Script("renew"), Script("finish"), Script("release", prelude="history")
HEARTBEAT, DEPTH, STATS, SHORTEN = Script("heartbeat"), Script("depth"), Script("stats"), Script("shorten")
