"""The log of an outage: one line when Redis is away or refuses commands, one when it answers."""

from __future__ import annotations

import logging
import time

from gradus.errors import QueueFault

log = logging.getLogger("gradus.queue")

REPORT_AFTER_S = 1.0
"""Seconds for which Redis must be away before that is logged: lost connections are replaced at
once."""
REPEAT_S = 30.0


class OutageLog:
    def __init__(self, shown: str) -> None:
        """`shown`: the URL of Redis without its password."""
        self._shown = shown
        self._since: float | None = None
        """Time of the first failure since the last success, of `time.monotonic`."""
        self._report_at = 0.0
        self._is_reported = False

    def record_failure(self, fault: QueueFault, *, passes: bool) -> None:
        """`passes`: the next attempt may succeed; other failures are logged at once."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._report_at = now + REPORT_AFTER_S
        if not passes and not self._is_reported:
            self._report_at = now
        if now >= self._report_at:
            log.warning("waiting for Redis at %s: %s", self._shown, fault.message)
            self._is_reported = True
            self._report_at = now + REPEAT_S

    def record_success(self) -> None:
        if self._is_reported:
            log.info("Redis at %s answers again", self._shown)
        self._since = None
        self._is_reported = False
