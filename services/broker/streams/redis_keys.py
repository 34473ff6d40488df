"""Redis keys of the queue and their times to live.

All under one prefix, so that one Redis can be shared and one ACL pattern covers it:

    queue:<grader>    zset     queued jobs by virtual time (start-time fair queuing, docs/decisions/0008)
    turns:<grader>    hash     virtual time of the job claimed last by priority, and of the last job of every fair share
    bell:<grader>     list     one token per job that was queued: wakes one idle worker
    jobs:<grader>     stream   running jobs: id; group `workers`
    job:<id>          hash     an unfinished job (`JOB_FIELDS`), and one field per inbox that waits
    result:<id>       string   the result of a finished job, to cache
    uncached:<id>     string   the result of a finished job, for the clients that wait already
    inbox:<producer>  stream   results on their way to one broker instance: id, result
    note:<key>        string   a text of `put_note`
    dead:<grader>     stream   dead letters: id, payload, history
    workers           zset     live workers by the time at which their registration ends
    worker:<name>     string   registration of that worker

Everything has a time to live, which use renews, so an abandoned Redis empties itself.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "workers"

JOB_TTL_S = 86_400.0
"""Seconds to keep job streams and job records. Far beyond every deadline: it only cleans up."""
INBOX_TTL_S = 300.0
"""Seconds to keep the inbox of a dead process. A process that was frozen for longer reads the stored results."""
DEAD_TTL_S = 7 * 86_400.0
JOB_FIELDS = ("grader", "payload", "entry", "starts", "turn", "history")
"""Fields of every `job:<id>`. `entry`: its id in the stream while it runs, else empty; `turn`: its virtual time."""
N_JOB_FIELDS = len(JOB_FIELDS)
"""A job record with only these fields has no inbox that waits: the job is unwanted."""
TRAINING_FROM = 10**12
"""First virtual time of training; evaluation starts at 0. Lua writes integers of up to 14 digits exactly."""
MAX_TOKENS = 1024
"""Wake-up tokens kept per queue."""
MAX_INBOX = 20_000
"""Results that one inbox holds; a process that falls behind further reads the stored results."""


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str = "gradus:"

    def queue(self, grader: str) -> str:
        return f"{self.prefix}queue:{grader}"

    def virtual_times(self, grader: str) -> str:
        return f"{self.prefix}turns:{grader}"

    def wakeup(self, grader: str) -> str:
        return f"{self.prefix}bell:{grader}"

    def waiting(self, grader: str) -> list[str]:
        """KEYS 1 to 4 of the scripts that move jobs."""
        return [self.queue(grader), self.virtual_times(grader), self.wakeup(grader), self.jobs(grader)]

    def jobs(self, grader: str) -> str:
        return f"{self.prefix}jobs:{grader}"

    def job(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"

    def result(self, job_id: str, *, cache: bool) -> str:
        return f"{self.prefix}{'result' if cache else 'uncached'}:{job_id}"

    def inbox(self, producer: str) -> str:
        return f"{self.prefix}inbox:{producer}"

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
