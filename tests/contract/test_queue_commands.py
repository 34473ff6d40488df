"""`gradus queue` against a real Redis and a real broker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from gradus.cli import main
from gradus.contract import RawSubmission
from services.broker import FairShare, Job, QueueFull
from services.broker.jobs import JobPayload
from services.broker.streams import StreamsBroker
from tests.fake_grader import INFO, submission


@pytest.fixture
def url(redis_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> str:
    server = redis_server()
    monkeypatch.setenv("GRADUS_REDIS_URL", server.url)
    return str(server.url)


def run(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["gradus", "queue", *words])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def with_broker(url: str, act: Callable[[StreamsBroker], Any]) -> Any:
    async def inside() -> Any:
        broker = StreamsBroker(url)
        try:
            return await act(broker)
        finally:
            await broker.close()

    return asyncio.run(inside())


def letter() -> Job:
    made = RawSubmission.model_validate(submission("a"))
    payload = JobPayload(
        submission=made, rubric="ocaml/graduated@1", deadline=time.time() - 1, grader=INFO.grader
    )
    return Job("ocaml:killer", "ocaml", payload.model_dump_json())


async def _bury(broker: StreamsBroker) -> None:
    await broker.heartbeat("w", INFO, 60)
    await broker.submit([letter()])
    [claim] = await broker.claim("ocaml", "w", 1, 5)
    await broker.finish(claim, "{}", cache=False, dead_letter=True)


def test_show_counts_workers_jobs_and_dead_letters(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with_broker(url, _bury)
    assert run("show") == 0
    heads, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert dict(zip(heads, rows[0], strict=True)) == {
        "grader": "ocaml",
        "workers": "1",
        "slots": "1",
        "queued": "0",
        "running": "0",
        "restarted": "0",
        "dead_letters": "1",
        "state": "open",
    }


def test_a_queue_is_paused_drained_and_resumed(url: str) -> None:
    assert run("pause", "ocaml") == 0
    assert with_broker(url, lambda broker: broker.get_queue_state("ocaml")) == "paused"
    assert run("drain", "ocaml") == 0
    with pytest.raises(QueueFull):
        with_broker(url, lambda broker: broker.submit([letter()]))
    assert run("resume", "ocaml") == 0
    assert with_broker(url, lambda broker: broker.get_queue_state("ocaml")) == "open"


def test_jobs_are_listed_and_cancelled_one_by_one_or_by_run(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def job(name: str) -> Job:
        return Job(f"ocaml:{name}", "ocaml", letter().payload)

    async def fill(broker: StreamsBroker) -> None:
        await broker.submit([job("running"), job("shared"), job("own")], FairShare("trainer a"))
        await broker.submit([job("shared"), job("other")], FairShare("trainer b"))
        await broker.claim("ocaml", "w", 1, 5)

    with_broker(url, fill)
    assert run("jobs", "ocaml") == 0
    assert capsys.readouterr().out.splitlines() == [
        "ocaml:running running 1 trainer a",
        "ocaml:shared queued 0 trainer a, trainer b",
        "ocaml:own queued 0 trainer a",
        "ocaml:other queued 0 trainer b",
    ]
    assert run("jobs", "ocaml", "--limit", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run("cancel", "ocaml", "--run", "trainer a") == 0
    assert "2 jobs cancelled" in capsys.readouterr().err
    assert run("cancel", "ocaml", "ocaml:shared", "ocaml:unknown") == 0
    assert "1 jobs cancelled" in capsys.readouterr().err
    assert run("jobs", "ocaml") == 0
    assert capsys.readouterr().out.splitlines() == [
        "ocaml:running running 1 ",
        "ocaml:other queued 0 trainer b",
    ]
    assert run("cancel", "ocaml") == 2
    assert run("cancel", "ocaml", "ocaml:other", "--run", "trainer b") == 2


def test_dead_letters_are_listed_shown_queued_again_and_purged(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with_broker(url, _bury)
    assert run("dead-letters", "list", "ocaml") == 0
    assert capsys.readouterr().out.split() == ["ocaml:killer"]
    assert run("dead-letters", "show", "ocaml", "ocaml:killer") == 0
    assert json.loads(json.loads(capsys.readouterr().out)["payload"])["submission"]["id"] == "a"
    assert run("dead-letters", "show", "ocaml", "unknown") == 2
    assert run("dead-letters", "requeue", "ocaml", "ocaml:killer") == 0
    [claim] = with_broker(url, lambda broker: broker.claim("ocaml", "w", 1, 5))
    assert JobPayload.model_validate_json(claim.job.payload).deadline > time.time() + 3000
    assert with_broker(url, lambda broker: broker.dead_letters("ocaml")) == []
    with_broker(url, lambda broker: broker.finish(claim, "{}", cache=False, dead_letter=True))
    assert run("dead-letters", "purge", "ocaml") == 0
    assert with_broker(url, lambda broker: broker.dead_letters("ocaml")) == []


def test_without_a_url_the_command_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GRADUS_REDIS_URL", raising=False)
    assert run("show") == 2
    assert "--redis" in capsys.readouterr().err
