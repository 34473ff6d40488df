"""The names of everything that the broker keeps in Redis, and how long it may lie there. Talks to nobody.

All under one prefix, so that one Redis can be shared and one ACL pattern covers it:

    queue:<grader>    zset     queued jobs by turn
    turns:<grader>    hash     the turn that is being handed out, and the last one of every fair_share
    bell:<grader>     list     one token per job that was queued: wakes one worker that waits
    jobs:<grader>     stream   running jobs: id; group `workers`
    job:<id>          hash     a job between submission and answer (`JOB_FIELDS`), one field per inbox that waits
    result:<id>       string   the result of a finished job, to cache
    uncached:<id>     string   the same, only for those who wait already
    inbox:<asker>     stream   answers on their way to one broker instance: id, result
    note:<key>        string   what processes want remembered
    dead:<grader>     stream   dead letters: id, payload, history
    workers           zset     live workers by the time at which they are forgotten
    worker:<name>     string   what that worker announced

Everything has a time to live, so an abandoned Redis empties itself. What is in use has its time renewed.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "workers"

JOB_TTL_S = 86_400.0
"""Of the job streams and job records. Far beyond every deadline: it only cleans up."""
INBOX_TTL_S = 300.0
"""Of the inbox of a process that died. One that only stood still this long reads the stored results instead."""
DEAD_TTL_S = 7 * 86_400.0
JOB_FIELDS = ("grader", "payload", "entry", "starts", "turn", "history")
"""Of every `job:<id>`; `entry` is its place in the stream while it runs, else empty."""
N_JOB_FIELDS = len(JOB_FIELDS)
"""A job record with no more fields than these is wanted by nobody."""
TRAINING_FROM = 10**12
"""Turns of training start here, those of evaluation at 0. Lua writes whole numbers of up to 14 digits exactly."""
MAX_TOKENS = 1024
MAX_INBOX = 20_000
"""Answers that one inbox holds; whoever falls behind further reads the stored results too."""


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str = "gradus:"

    def queue(self, grader: str) -> str:
        return f"{self.prefix}queue:{grader}"

    def turns(self, grader: str) -> str:
        return f"{self.prefix}turns:{grader}"

    def bell(self, grader: str) -> str:
        return f"{self.prefix}bell:{grader}"

    def waiting(self, grader: str) -> list[str]:
        """Everything about what is queued and running: the first keys of the scripts that move jobs."""
        return [self.queue(grader), self.turns(grader), self.bell(grader), self.jobs(grader)]

    def jobs(self, grader: str) -> str:
        return f"{self.prefix}jobs:{grader}"

    def job(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"

    def result(self, job_id: str, *, cache: bool) -> str:
        return f"{self.prefix}{'result' if cache else 'uncached'}:{job_id}"

    def inbox(self, asker: str) -> str:
        return f"{self.prefix}inbox:{asker}"

    def note(self, key: str) -> str:
        return f"{self.prefix}note:{key}"

    def dead(self, grader: str) -> str:
        return f"{self.prefix}dead:{grader}"

    @property
    def workers(self) -> str:
        return f"{self.prefix}workers"

    def worker(self, name: str) -> str:
        return f"{self.prefix}worker:{name}"


def ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
