"""Puts the date of a process `CLOCK_AHEAD_S` seconds ahead. The clock that measures intervals,
`time.monotonic`, stays right, as on a machine with a wrong date."""

import os
import time

_AHEAD_S = float(os.environ.get("CLOCK_AHEAD_S", "0"))
_RIGHT_TIME = time.time
_RIGHT_TIME_NS = time.time_ns
if _AHEAD_S:
    time.time = lambda: _RIGHT_TIME() + _AHEAD_S
    time.time_ns = lambda: _RIGHT_TIME_NS() + int(_AHEAD_S * 1e9)
