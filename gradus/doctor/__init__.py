"""`gradus doctor`: looks at this machine and says what to do about what is missing. Changes nothing.

`grading` looks for what judges answers, `hardware` at what computes, `packages` for what training can use. `mps` is
`make verify-mps`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from gradus.doctor.grading import grading_signs, tried_servers
from gradus.doctor.hardware import hardware_signs
from gradus.doctor.packages import package_signs
from gradus.doctor.sign import Sign


def examine(redis: str | None = None, url: str | None = None, *, as_json: bool = False) -> int:
    """Print what was found, a line for each, or all as one JSON object; 0 when all that is needed is there, else 1."""
    found = []
    for sign in signs(redis, url):
        found.append(sign)
        if not as_json:
            print(sign, flush=True)
    fine = all(sign.fine or not sign.needed for sign in found)
    if as_json:
        print(json.dumps({"fine": fine, "signs": [asdict(sign) for sign in found]}, indent=1))
    return 0 if fine else 1


def signs(redis: str | None, url: str | None) -> Iterator[Sign]:
    """What was looked at, in the order in which one would mend it."""
    yield from hardware_signs()
    yield from grading_signs()
    yield from package_signs()
    yield from tried_servers(redis, url)
