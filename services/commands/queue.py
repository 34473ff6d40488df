"""Commands for operators of a queue: show, pause and drain it, and handle dead letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gradus.console import Grader, Redis, log_line
from gradus.errors import Misuse

if TYPE_CHECKING:
    from services.broker import Broker

T = TypeVar("T")
queue_app = typer.Typer(help="Inspect and control the queue in Redis.", no_args_is_help=True)
letters_app = typer.Typer(
    help="Handle submissions that killed their workers.", no_args_is_help=True
)
queue_app.add_typer(letters_app, name="dead-letters")

JobId = Annotated[str, typer.Argument(help="Id of the job, as `list` prints it", metavar="JOB")]


def run_on_broker(
    redis: str | None, act: Callable[[Broker], Awaitable[T]], *, grader: str | None = None
) -> T:
    """Return what `act` returns for the broker at `redis`. Raises Misuse without a URL, and for a
    `grader` that neither this machine nor the queue knows."""
    from services.broker import QueueFull
    from services.broker.from_url import open_broker
    from services.broker.queue_commands import require_grader

    if redis is None:
        raise Misuse(
            "these commands need the queue: --redis redis://host:6379/0 (or GRADUS_REDIS_URL)"
        )

    async def run() -> T:
        broker = open_broker(redis)
        try:
            if grader is not None:
                await require_grader(broker, grader)
            return await act(broker)
        except QueueFull as full:
            raise Misuse(str(full)) from None
        finally:
            await broker.close()

    return asyncio.run(run())


@queue_app.command()
def show(redis: Redis = None) -> None:
    """Show each grader's queue: live workers, slots, queued and running jobs, dead letters,
    state."""
    from gradus.tasks import TASKS
    from services.broker.queue_commands import count_jobs

    rows = run_on_broker(redis, lambda broker: count_jobs(broker, TASKS))
    columns = list(next(iter(rows.values())))
    print(f"{'grader':<16}" + "".join(f"{column:>14}" for column in columns))
    for name, row in rows.items():
        print(f"{name:<16}" + "".join(f"{row[column]!s:>14}" for column in columns))


def _set_state(grader: str, redis: str | None, state: str) -> None:
    from services.broker import QueueState

    run_on_broker(
        redis, lambda broker: broker.set_queue_state(grader, QueueState(state)), grader=grader
    )
    log_line(f"gradus: the queue of {grader} is {state}")


@queue_app.command()
def pause(grader: Grader, redis: Redis = None) -> None:
    """Start no more queued jobs of GRADER. Running jobs end; new jobs are accepted and wait."""
    _set_state(grader, redis, "paused")


@queue_app.command()
def drain(grader: Grader, redis: Redis = None) -> None:
    """Accept no more jobs of GRADER (clients get 429). Queued and running jobs end."""
    _set_state(grader, redis, "draining")


@queue_app.command()
def resume(grader: Grader, redis: Redis = None) -> None:
    """Accept and start jobs of GRADER again."""
    _set_state(grader, redis, "open")


@queue_app.command("jobs")
def list_jobs(
    grader: Grader,
    redis: Redis = None,
    limit: Annotated[int, typer.Option(min=1, help="Most jobs of each state")] = 50,
) -> None:
    """List running and queued jobs of GRADER: id, state, starts, runs that wait for it."""
    jobs = run_on_broker(redis, lambda broker: broker.list_unfinished(grader, limit), grader=grader)
    for job in jobs:
        print(job.id, "running" if job.is_running else "queued", job.starts, ", ".join(job.runs))


@queue_app.command()
def cancel(
    grader: Grader,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOBS", help="Ids of jobs, as `gradus queue jobs` prints them"),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Cancel all jobs that this run alone waits for")
    ] = None,
    redis: Redis = None,
) -> None:
    """Cancel unfinished jobs of GRADER. Their clients get a fault that is not retryable; boxes that
    run are killed."""
    from services.broker.queue_commands import cancel as cancel_jobs

    count = run_on_broker(
        redis, lambda broker: cancel_jobs(broker, grader, jobs or [], run or ""), grader=grader
    )
    log_line(f"gradus: {count} jobs cancelled")


@queue_app.command()
def migrate(redis: Redis = None) -> None:
    """Load the functions of this release into Redis, beside those of others, as the user `api`.

    Run it before the first worker of a new release starts. It changes nothing else, and may run
    twice.
    """
    library = run_on_broker(redis, lambda broker: broker.migrate())
    log_line(f"gradus: the functions of this release are loaded as {library}")


@queue_app.command("workers")
def show_workers(redis: Redis = None) -> None:
    """List live workers and those that died in the last hour: slots, revision, age, last heartbeat,
    cause of death."""
    from services.broker.workers import list_workers

    columns = "{:<40} {:<20} {:>5} {:<28} {:>9} {:>9}  {}"
    print(columns.format("worker", "host", "slots", "grader", "age s", "silent s", "state"))
    for worker in run_on_broker(redis, list_workers):
        state = f"dead: {worker.cause}" if worker.is_dead else "live"
        row = (worker.name, worker.host, worker.slots, worker.grader)
        print(columns.format(*row, f"{worker.age_s:.0f}", f"{worker.silent_s:.0f}", state))


@letters_app.command("list")
def list_letters(grader: Grader, redis: Redis = None) -> None:
    """List the dead letters of GRADER, oldest first: job and end of its last start but one."""
    letters = run_on_broker(redis, lambda broker: broker.dead_letters(grader), grader=grader)
    for letter in letters:
        print(letter.job.id, letter.history[-1] if letter.history else "")


@letters_app.command("show")
def show_letter(grader: Grader, job: JobId, redis: Redis = None) -> None:
    """Print one dead letter as JSON: the submission, its rubric, and how its starts ended."""
    from services.broker.queue_commands import get_dead_letter

    letter = run_on_broker(
        redis, lambda broker: get_dead_letter(broker, grader, job), grader=grader
    )
    print(json.dumps({"job": job, "history": letter.history, "payload": letter.job.payload}))


@letters_app.command()
def requeue(grader: Grader, job: JobId, redis: Redis = None) -> None:
    """Queue a dead letter again, for an hour. Its verdict is cached for clients that send the
    submission again."""
    from services.broker.queue_commands import requeue as requeue_letter

    run_on_broker(redis, lambda broker: requeue_letter(broker, grader, job), grader=grader)
    log_line(f"gradus: {job} is queued again")


@letters_app.command()
def purge(grader: Grader, redis: Redis = None) -> None:
    """Delete all dead letters of GRADER."""

    from services.broker.queue_commands import purge as purge_letters

    count = run_on_broker(redis, lambda broker: purge_letters(broker, grader), grader=grader)
    log_line(f"gradus: {count} dead letters deleted")
