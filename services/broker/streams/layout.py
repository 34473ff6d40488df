"""Redis keys of the queue, their times to live and the bounds of what they hold.

All keys share one prefix, so that one Redis can be shared and one ACL pattern covers them:

    queue:<grader>    zset     queued jobs by virtual time (start-time fair queuing,
                               docs/decisions/0008)
    turns:<grader>    hash     virtual time of the job claimed last by priority, of the last job of
                               every API key and, in times of its own, of every run of the key, and
                               jobs claimed while evaluation would have been all (take.lua)
    runs:<grader>     zset     queued jobs of each API key by its runs' turns (runs.lua)
    bell:<grader>     list     one token per job that was queued: wakes one idle worker
    jobs:<grader>     stream   running jobs: id; group `workers`
    job:<id>          hash     an unfinished job (`N_JOB_FIELDS`), one field per inbox that waits
                               (its runs)
    result:<id>       string   the result of a finished job, to cache
    uncached:<id>     string   the result of a finished job, for the clients that wait already
    inbox:<producer>  stream   results on their way to one broker instance: id, result
    note:<key>        string   a text of `save_note` or `keep_job`
    kept:<API key>    zset     asynchronous jobs of an API key by deadline, each with the bytes that
                               it counts
    looks:<grader>    string   times of the last look for lapsed leases and of the first since an
                               interruption
    dead:<grader>     stream   dead letters: id, payload, history
    share             string   share of their time to live for which results are kept, while memory
                               is short
    state:<grader>    string   `QueueState` that an operator has set
    workers           zset     live workers, and those that died in the last hour, by the time at
                               which their registration ends
    worker:<name>     string   registration of that worker; the name begins with its grader's and
                               `:`

Every key has a time to live, which use renews, so an abandoned Redis empties itself.
"""

from services.broker import MAX_FAIR_SHARES, TRAINING_PART, Priority

GROUP = "workers"
QUEUE = ("queue", "turns", "bell", "jobs")
"""KEYS 1 to 4 of the scripts that move jobs."""
JOB_TTL_MS = 86_400_000
"""Time to keep job streams and job records. It is far beyond every deadline: it only cleans up."""
INBOX_TTL_MS = 300_000
"""Time to keep the inbox of a dead process. A process that was frozen for longer reads the stored
results."""
STATE_TTL_MS = 7 * JOB_TTL_MS
"""Time to keep the state that an operator set: a forgotten pause ends."""
N_JOB_FIELDS = 6
"""Number of fields in every `job:<id>`: grader, payload, entry, starts, turn, history.

`entry` is the job's id in the stream while it runs, else empty; `turn` its virtual time. A record
with only these fields has no inbox that waits: the job is unwanted.
"""
TRAINING_FROM = 10**12
"""First virtual time of training; evaluation starts at 0. Lua writes integers of up to 14 digits
exactly."""
MAX_TOKENS = 1024
"""Wake-up tokens kept per queue."""
FIRST = {Priority.EVALUATION: 0, Priority.TRAINING: TRAINING_FROM}
"""First virtual time of each priority."""
SUBMIT_LIMITS = (JOB_TTL_MS, MAX_FAIR_SHARES, MAX_TOKENS)
PRIORITIES = (TRAINING_FROM, TRAINING_PART)
MAX_INBOX = 20_000
"""Results that one inbox holds; a process that falls behind further reads the stored results."""
MAX_REPAIRS = 100
"""Stream entries repaired per look for lapsed leases."""
IDLE_CONSUMER_MS = 3_600_000
"""Time without a command after which a worker is removed from the group."""
