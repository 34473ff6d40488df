"""Derives the graders' seccomp profile from a container engine's default profile.

Usage: make_seccomp.py DEFAULT.json > seccomp-grader.json

A grader starts bubblewrap as an unprivileged user, and Docker's default refuses the five calls that
build a user and a mount namespace to a container without CAP_SYS_ADMIN. ADDED allows those five and
no other. REMOVED are calls that Docker itself dropped from later defaults and that no grader needs.
The script does not judge the rest of the profile: give it the default of the engine you run.
"""

import json
import sys
from pathlib import Path
from typing import Any

ADDED = ("clone", "mount", "pivot_root", "umount2", "unshare")
REMOVED = ("io_uring_enter", "io_uring_register", "io_uring_setup")

Profile = dict[str, Any]


def without(profile: Profile, names: tuple[str, ...]) -> Profile:
    """Return the profile without any mention of `names`, rules left empty included."""
    rules = []
    for rule in profile["syscalls"]:
        kept = [name for name in rule["names"] if name not in names]
        if kept:
            rules.append({**rule, "names": kept})
    return {**profile, "syscalls": rules}


def derive(default: Profile) -> Profile:
    """The default profile with ADDED allowed unconditionally and REMOVED left to the default action
    (an error)."""
    # A rule that still names one of them (an error rule, or one for CAP_SYS_ADMIN) would compete
    # with ours.
    profile = without(default, ADDED + REMOVED)
    profile["syscalls"].append({"names": list(ADDED), "action": "SCMP_ACT_ALLOW"})
    return profile


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(json.dumps(derive(json.loads(Path(sys.argv[1]).read_text())), indent="\t"))
