"""Errors of Redis and its connections as queue faults: which pass by themselves, and which are
refusals."""

from __future__ import annotations

from redis import exceptions as redis_errors
from redis.asyncio.sentinel import MasterNotFoundError

from gradus.errors import QueueFault
from services.broker.streams.cluster import is_cluster

PASSING = ("UNBLOCKED", "NOREPLICAS", "BUSY ")
"""First words of errors that a failover or a long script causes, and that end with it."""

MOVING = (redis_errors.AskError, redis_errors.TryAgainError, redis_errors.ClusterDownError)
"""Errors of a cluster whose slots move or whose masters fail over."""
STOPPED_SCRIPT = ("access a non local key", "while the cluster is down")
"""Parts of what a script ends with for the same reasons."""


class RedisUnavailable(QueueFault):
    """Redis cannot be reached; the next attempt may succeed."""


class NoFunction(RedisUnavailable):
    """The functions of this release are not in Redis; a client that may load them does when it
    first needs one."""


class NoPermission(QueueFault):
    """The user may not run this command."""


class NoGroup(QueueFault):
    """The stream or its consumer group does not exist."""


class NoMemory(QueueFault):
    """Redis is at its `maxmemory` and refused a command that would need more."""


def build_fault(error: Exception, shown: str, timeout_s: float) -> QueueFault:
    """Return the fault that `error`, of a command to the Redis at `shown`, means; `timeout_s` is
    what the command had."""
    if isinstance(error, redis_errors.ResponseError) and str(error).startswith("NOGROUP"):
        return NoGroup(f"Redis at {shown} has no such consumer group")
    if isinstance(error, redis_errors.OutOfMemoryError):
        return NoMemory(f"Redis at {shown} is at its `maxmemory`: raise it, or try again later")
    if str(error) == "Function not found":
        return NoFunction(
            f"Redis at {shown} has no functions of this release: run this release's `gradus queue"
            " migrate --redis URL` with the URL of the user `api` (redis-api.url of `make secrets`)"
        )
    is_replica = isinstance(error, redis_errors.ReadOnlyError | redis_errors.MasterDownError)
    is_moving = not is_replica and isinstance(error, MOVING)
    is_moving = is_moving or any(part in str(error) for part in STOPPED_SCRIPT)
    crosses_slots = isinstance(error, redis_errors.ClusterCrossSlotError)
    if (is_moving or crosses_slots) and not is_cluster(shown):
        return QueueFault(
            f"Redis at {shown} is a cluster: begin its URL with redis+cluster://, or"
            " rediss+cluster:// for TLS",
            retryable=False,
        )
    why = f"no reply within {timeout_s:.1f} s" if isinstance(error, TimeoutError) else str(error)
    if isinstance(error, MasterNotFoundError):
        why = "no Sentinel knows the master"  # redis-py's message lists the options of connections
    if is_moving:
        why = "the partition moves to another master, or a failover is under way"
    is_login = isinstance(error, redis_errors.AuthenticationError)
    is_reply = isinstance(error, redis_errors.RedisError)
    is_lost = not is_reply or isinstance(
        error, redis_errors.ConnectionError | redis_errors.TimeoutError
    )
    if is_login or not (is_lost or is_replica or is_moving or str(error).startswith(PASSING)):
        message = (
            f"Redis at {shown} refuses a command ({why}): check its user, password, memory and"
            " version"
        )
        kind = NoPermission if isinstance(error, redis_errors.NoPermissionError) else QueueFault
        return kind(message, retryable=not is_login)
    return RedisUnavailable(
        f"cannot reach Redis at {shown} ({why or type(error).__name__}): "
        "check that it runs and that the URL is right, then try again"
    )
