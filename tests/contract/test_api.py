"""The HTTP service over a real in-memory broker and a real worker with a trivial grader."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from gradus.contract import MAX_BATCH, RESULT
from gradus.descriptions import GraderDescription, GraderList
from gradus.errors import Misuse, QueueFault
from gradus.rest import GradeResponse, JobStatus, Problem
from gradus.tasks.base import MAX_TEXT_CHARS
from services.api import answer
from services.api.api_keys import compute_hash, create_key, parse_keys
from services.api.app import create_app
from services.api.dispatch import MAX_JOBS_WITHOUT_LOOKUP
from services.api.parse import Reservation
from services.api.schema import Accepted
from services.api.server import refuse_open_service, serve
from services.api.settings import ApiSettings
from services.broker import MIN_NOTE_BYTES, Broker, BrokerSettings, FairShare, QueueStats
from services.broker.memory import MemoryBroker
from services.broker.signing import CANCELLED, sign_result
from services.broker.streams import StreamsBroker
from tests.chaos.worker import verdict
from tests.fake_grader import HIDDEN, INFO, PROMPT, SETTINGS, EchoWorker, Service, submission

GRADE = "/v1/grade/ocaml"


class AwayBroker(MemoryBroker):
    """A broker whose store can be reached no more once `away` is set."""

    away = False

    async def graders(self) -> list[Any]:
        if self.away:
            raise QueueFault("the queue is away")
        return await super().graders()


@asynccontextmanager
async def service(
    broker: Broker | None = None, *, worker: bool = True, **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, EchoWorker]]:
    broker = broker or MemoryBroker()
    app = create_app(broker, ApiSettings(**(SETTINGS | settings)))
    echo = EchoWorker(broker)
    async with AsyncExitStack() as stack:
        if worker:
            await stack.enter_async_context(echo.working())
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
        stack.push_async_callback(app.state.api.jobs.close)
        yield await stack.enter_async_context(client), echo


def body(*submissions: Any, **options: Any) -> dict[str, Any]:
    return {"submissions": list(submissions), "deadline_s": 20} | options


def is_problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    for secret in (HIDDEN, PROMPT, "Traceback", "site-packages"):
        assert secret not in response.text
    return problem


# ----------------------------------------------------------------------------------------- grading


async def test_results_come_in_request_order_one_for_each_submission() -> None:
    async with service() as (client, _):
        sent = [submission(f"s{index}", f"reward {index / 10}") for index in range(10)]
        response = await client.post(GRADE, json=body(*sent))
    assert response.status_code == 200
    results = GradeResponse.model_validate_json(response.content).results
    assert [(result.id, getattr(result, "reward", None)) for result in results] == [
        (f"s{index}", index / 10) for index in range(10)
    ]


async def test_a_result_repeats_neither_tests_nor_prompt() -> None:
    async with service() as (client, _):
        response = await client.post(GRADE, json=body(submission("a"), submission("b", "fault")))
    assert "secret" not in response.text
    assert HIDDEN not in response.text
    assert PROMPT not in response.text


async def test_an_empty_batch_has_empty_results() -> None:
    async with service(worker=False) as (client, _):
        response = await client.post(GRADE, json={"submissions": []})
    assert response.json() == {"results": []}


async def test_a_fault_is_an_item_and_leaves_its_batch_mates_unharmed() -> None:
    async with service() as (client, _):
        response = await client.post(
            GRADE,
            json=body(submission("a"), submission("b", "fault"), submission("c", "reward 0.5")),
        )
    good, faulted, other = response.json()["results"]
    assert (good["reward"], other["reward"]) == (1.0, 0.5)
    assert faulted == {
        "id": "b",
        "status": "faulted",
        "fault": {"kind": "sandbox", "message": "the box broke", "retryable": True},
    }


async def test_a_completion_with_nul_is_judged_and_leaves_its_batch_mates_unharmed() -> None:
    async with service() as (client, _):
        answer = await client.post(
            GRADE, json=body(submission("a", "reward 1"), submission("b", "reward 0.5 \0"))
        )
    assert [result["reward"] for result in answer.json()["results"]] == [1.0, 0.5]


async def test_identical_submissions_of_one_request_are_worked_on_once() -> None:
    async with service() as (client, echo):
        response = await client.post(
            GRADE, json=body(*(submission(f"s{index}") for index in range(5)))
        )
        assert echo.graded["reward 1"] == 1
    results = response.json()["results"]
    assert [result["id"] for result in results] == [f"s{index}" for index in range(5)]
    assert not any(result["cached"] for result in results)


async def test_a_verdict_that_was_there_already_is_marked_cached_and_not_worked_on_again() -> None:
    async with service() as (client, echo):
        first = await client.post(GRADE, json=body(submission("a")))
        second = await client.post(
            GRADE, json=body(submission("b", prompt="another prompt"), submission("c", "reward 0"))
        )
        assert echo.graded["reward 1"] == 1
    [fresh] = first.json()["results"]
    [again, other] = second.json()["results"]
    assert (fresh["cached"], other["cached"]) == (False, False)
    assert again == fresh | {"id": "b", "cached": True}


async def test_the_same_id_with_another_content_is_another_submission() -> None:
    """An id names a place in an answer, not the work."""
    sent = [submission("a", f"reward {reward}") for reward in (0.25, 0.5, 0.25)]
    sent.append(submission("a", "reward 0.25", task={"tests": "let () = assert true"}))
    async with service() as (client, echo):
        results = [(await client.post(GRADE, json=body(one))).json()["results"][0] for one in sent]
        assert echo.graded == {"reward 0.25": 2, "reward 0.5": 1}
    assert [(result["reward"], result["cached"]) for result in results] == [
        (0.25, False),
        (0.5, False),
        (0.25, True),
        (0.25, False),
    ]


async def test_another_revision_of_the_grader_grades_again() -> None:
    broker = MemoryBroker()
    async with service(broker, worker=False) as (client, _):
        for revision in ("r1", "r2"):
            async with EchoWorker(
                broker, INFO.model_copy(update={"revision": revision})
            ).working() as worker:
                response = await client.post(GRADE, json=body(submission("a")))
            assert response.json()["results"][0]["cached"] is False
            assert worker.graded == {"reward 1": 1}


@pytest.mark.parametrize("number", [MAX_JOBS_WITHOUT_LOOKUP, MAX_JOBS_WITHOUT_LOOKUP + 1])
async def test_a_batch_takes_its_verdicts_from_the_cache_whatever_its_size(number: int) -> None:
    sent = [submission(f"s{n}", f"reward {n / number}") for n in range(number)]
    async with service() as (client, echo):
        first = (await client.post(GRADE, json=body(*sent))).json()["results"]
        again = (await client.post(GRADE, json=body(*sent, submission("new", "flagged")))).json()[
            "results"
        ]
        assert echo.graded.total() == number + 1
    assert [result["cached"] for result in again] == [True] * number + [False]
    assert [result["reward"] for result in again[:-1]] == [result["reward"] for result in first]


async def test_a_fault_is_not_cached() -> None:
    async with service() as (client, echo):
        for _ in range(2):
            await client.post(GRADE, json=body(submission("a", "fault")))
        assert echo.graded["fault"] == 2


async def test_the_default_rubric_is_the_first_that_the_grader_offers() -> None:
    async with service() as (client, _):
        default = await client.post(GRADE, json=body(submission("a")))
        named = await client.post(GRADE, json=body(submission("a"), rubric="ocaml/binary@1"))
    assert default.json()["results"][0]["rubric"] == "ocaml/graduated@1"
    assert named.json()["results"][0]["rubric"] == "ocaml/binary@1"
    assert named.json()["results"][0]["cached"] is False


async def test_a_job_that_ended_with_somebody_elses_deadline_is_submitted_again() -> None:
    async with service() as (client, echo):
        response = await client.post(GRADE, json=body(submission("a", "late")))
        assert echo.graded["late"] == 2
    assert response.json()["results"][0]["status"] == "graded"


async def test_an_answer_that_is_no_result_becomes_a_fault() -> None:
    async with service() as (client, _):
        response = await client.post(GRADE, json=body(submission("a", "nonsense")))
    assert response.json()["results"][0]["fault"]["kind"] == "internal"


@pytest.mark.parametrize(
    "signer",
    [
        "its grader",
        "another grader",
        "nobody",
        "its grader, for another job",
        "an operator who cancels",
    ],
)
async def test_only_a_result_that_its_grader_signed_is_given_out(
    signer: str, tmp_path: Path
) -> None:
    ours = b"o" * 32
    theirs = b"t" * 32
    secrets = tmp_path / "secrets"
    secrets.write_text(f"ocaml {ours.decode()}\nrust {theirs.decode()}\n")
    broker = MemoryBroker()
    async with service(broker, worker=False, grader_secrets_file=secrets) as (client, _):
        await broker.heartbeat("w", INFO, 600)
        asking = asyncio.create_task(client.post(GRADE, json=body(submission("a"))))
        [claim] = await broker.claim("ocaml", "w", 1, 20)
        text = verdict("a", "x").model_dump_json()
        job_id = claim.job.id
        results = {
            "its grader": sign_result(text, job_id, ours),
            "another grader": sign_result(text, job_id, theirs),
            "nobody": text,
            "its grader, for another job": sign_result(text, "ocaml:other", ours),
            "an operator who cancels": CANCELLED,
        }
        await broker.finish(claim, results[signer], cache=True)
        (result,) = (await asking).json()["results"]
    if signer == "its grader":
        assert result["status"] == "graded"
    elif signer == "an operator who cancels":
        assert result["fault"] == {
            "kind": "queue",
            "message": "cancelled by an operator",
            "retryable": False,
        }
    else:
        assert (result["status"], result["fault"]["kind"]) == ("faulted", "internal")
        assert "not signed" in result["fault"]["message"]


async def test_at_the_deadline_what_is_missing_becomes_a_fault_that_names_it_and_is_given_up() -> (
    None
):
    broker = MemoryBroker()
    async with service(broker) as (client, echo):
        sent = body(submission("slow", "hold"), submission("quick"), deadline_s=1)
        slow, quick = (await client.post(GRADE, json=sent)).json()["results"]
        echo.letting_go.set()
    assert quick["status"] == "graded"
    assert slow["fault"]["kind"] == "deadline"
    assert slow["fault"]["retryable"] is True
    assert "ocaml submission 'slow'" in slow["fault"]["message"]


async def test_without_a_worker_the_fault_says_which_to_start() -> None:
    broker = MemoryBroker()
    async with service(broker, worker=False) as (client, _):
        response = await client.post(GRADE, json=body(submission("a"), deadline_s=60))
        assert await broker.depth("ocaml") == 0
    fault = response.json()["results"][0]["fault"]
    assert fault["kind"] == "queue"
    assert fault["retryable"] is True
    assert "start one with `gradus worker ocaml --redis redis://...`" in fault["message"]


async def test_a_deadline_within_the_grace_period_is_kept_without_a_worker() -> None:
    async with service(worker=False, worker_grace_s=600) as (client, _):
        response = await client.post(GRADE, json=body(submission("a"), deadline_s=0.2))
    assert response.json()["results"][0]["fault"]["kind"] == "queue"


async def test_a_worker_that_comes_within_the_grace_period_is_waited_for() -> None:
    broker = MemoryBroker()
    async with service(broker, worker=False, worker_grace_s=600) as (client, echo):
        asking = asyncio.create_task(client.post(GRADE, json=body(submission("a"))))
        await asyncio.sleep(0)
        async with echo.working():
            response = await asking
    assert response.json()["results"][0]["status"] == "graded"


async def test_a_batch_that_is_withdrawn_twice_leaves_its_jobs_to_another_request(
    redis_url: str,
) -> None:
    """A client that leaves while faults of the deadline are delivered withdraws its batch again."""
    redis = StreamsBroker(redis_url, prefix=f"twice-{os.urandom(8).hex()}:")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(redis.close)
        for broker in (MemoryBroker(), redis):
            await broker.heartbeat("one", INFO, 600)
            api = create_app(broker, ApiSettings(**SETTINGS)).state.api
            grader = await api.registry.find_known("ocaml")
            batches = []
            for _ in range(2):
                reservation = Reservation(api.in_flight, "any")
                request = grader.pack_request([submission("a")], 600)
                batch = await api.dispatcher.start_batch(
                    grader.description, request, FairShare(), reservation
                )
                batches.append(batch)
            for batch, left in ((batches[0], 1), (batches[0], 1), (batches[1], 0)):
                await api.dispatcher.cancel(batch)
                assert await broker.depth("ocaml") == left


async def test_jobs_whose_workers_all_left_are_answered_without_waiting_for_the_deadline() -> None:
    broker = MemoryBroker()
    async with service(broker, worker=False) as (client, _):
        await broker.heartbeat("gone", INFO, 60)
        asking = asyncio.create_task(client.post(GRADE, json=body(submission("a"), deadline_s=600)))
        while not await broker.depth("ocaml"):  # noqa: ASYNC110 - the broker tells nobody who only looks
            await asyncio.sleep(0.01)
        await broker.heartbeat("gone", INFO, 0)
        response = await asking
        assert await broker.depth("ocaml") == 0
    assert response.json()["results"][0]["fault"]["kind"] == "queue"


# ----------------------------------------------------------------------------------------- streams


async def test_a_stream_brings_every_result_once_as_one_line() -> None:
    async with service() as (client, _):
        sent = [submission(f"s{index}", f"reward {index % 3 / 2}") for index in range(30)]
        response = await client.post(f"{GRADE}/stream", json=body(*sent, submission("f", "fault")))
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in response.content.split(b"\n") if line]
    assert sorted(line["id"] for line in lines) == sorted(
        [f"s{index}" for index in range(30)] + ["f"]
    )


async def test_a_stream_gathers_lines_and_ends_with_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        answer, "GATHER_S", 3600.0
    )  # a stream that waited at its end would not end here
    bodies: list[bytes] = []
    broker = MemoryBroker()
    sent = [submission(f"s{index}", f"reward {index / 64}") for index in range(64)]
    app = create_app(broker, ApiSettings(**SETTINGS))

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            bodies.append(message.get("body", b""))
            await send(message)

        await app(scope, receive, note)

    async with (
        EchoWorker(broker).working(),
        httpx.AsyncClient(transport=httpx.ASGITransport(noting), base_url="http://test") as client,
    ):
        response = await client.post(f"{GRADE}/stream", json=body(*sent))
    assert [one.count(b"\n") for one in bodies if one] == [64]
    assert {json.loads(line)["id"] for line in response.content.splitlines()} == {
        one["id"] for one in sent
    }


def test_a_stream_brings_results_before_the_last_one_is_ready() -> None:
    with (
        Service().running() as here,
        httpx.stream(
            "POST",
            f"{here.url}{GRADE}/stream",
            json=body(submission("slow", "hold"), submission("quick")),
        ) as response,
    ):
        chunks = response.iter_bytes()
        first = json.loads(next(chunks))
        here.call(here.worker.letting_go.set)
        rest = b"".join(chunks)
    assert first["id"] == "quick"
    assert json.loads(rest)["id"] == "slow"


async def test_a_stream_without_news_sends_empty_lines() -> None:
    async with service(heartbeat_s=0.01) as (client, echo):
        asking = asyncio.create_task(
            client.post(f"{GRADE}/stream", json=body(submission("slow", "hold")))
        )
        await echo.holding.wait()
        await asyncio.sleep(0.1)
        echo.letting_go.set()
        lines = (await asking).content.split(b"\n")
    assert [json.loads(line)["id"] for line in lines if line] == ["slow"]
    assert lines.count(b"") >= 2


async def test_a_stream_that_cannot_begin_is_a_problem() -> None:
    async with service(MemoryBroker(BrokerSettings(max_depth=1)), worker=True) as (client, _):
        response = await client.post(
            f"{GRADE}/stream", json=body(submission("a", "reward 0"), submission("b"))
        )
    is_problem(response, 429)


# ---------------------------------------------------------------------- those who leave


@pytest.mark.parametrize("route", [GRADE, f"{GRADE}/stream"])
def test_a_client_that_leaves_gives_its_queued_jobs_up(route: str) -> None:
    with Service(worker=False).running() as here:
        asyncio.run_coroutine_threadsafe(
            here.broker.heartbeat("busy", INFO, 600), here.loop
        ).result(20)
        request = httpx.Request(
            "POST", f"{here.url}{route}", json=body(submission("a"), deadline_s=600)
        )
        with httpx.Client(timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
            client.send(request)
        depth = 1
        while depth:  # the test's own time limit ends this
            depth = asyncio.run_coroutine_threadsafe(here.broker.depth("ocaml"), here.loop).result(
                20
            )


# -------------------------------------------------------------------------------------------- jobs


async def done(client: httpx.AsyncClient, location: str) -> dict[str, Any]:
    while True:
        status: dict[str, Any] = (await client.get(location)).json()
        if status["status"] == "done":
            return status
        assert status["results"] is None
        await asyncio.sleep(0.01)


class FillingBroker(MemoryBroker):
    """A broker whose store has as much memory left as `fill` says."""

    fill = 0.0

    async def get_memory_fill(self) -> float:
        return self.fill

    def list_ttls_s(self) -> list[float]:
        """Return the seconds for which what is known of each job is still kept."""
        return [end - time.monotonic() for end in self._notes.get_ends().values()]


@pytest.mark.parametrize(
    ("fill", "least_s", "most_s"), [(0.0, 3500, 3620), (0.7, 1700, 1820), (0.89, 50, 120)]
)
async def test_jobs_are_kept_for_less_time_while_memory_is_short(
    fill: float, least_s: float, most_s: float
) -> None:
    broker = FillingBroker()
    async with service(broker) as (client, _):
        broker.fill = fill
        accepted = await client.post("/v1/jobs/ocaml", json=body(submission("a")))
        app = client._transport.app  # type: ignore[attr-defined]
        await asyncio.gather(*app.state.api.jobs._watchers.values())
        await done(client, accepted.headers["location"])
        assert len(broker.list_ttls_s()) == 2
        assert all(least_s < ttl_s <= most_s for ttl_s in broker.list_ttls_s())


async def test_cached_work_too_is_no_job_where_memory_is_full() -> None:
    broker = FillingBroker()
    async with service(broker) as (client, _):
        request = body(submission("a"))
        assert (await client.post(GRADE, json=request)).status_code == 200
        broker.fill = 0.9
        assert (
            "memory" in is_problem(await client.post("/v1/jobs/ocaml", json=request), 429)["detail"]
        )
        assert not broker.list_ttls_s()
        assert (await client.post(GRADE, json=request)).status_code == 200


async def test_a_job_is_accepted_at_once_and_has_its_results_in_order_later() -> None:
    async with service() as (client, echo):
        accepted = await client.post(
            "/v1/jobs/ocaml", json=body(submission("a", "hold"), submission("b", "fault"))
        )
        assert accepted.status_code == 202
        assert accepted.headers["location"] == f"/v1/jobs/{accepted.json()['id']}"
        await echo.holding.wait()
        status = (await client.get(accepted.headers["location"])).json()
        assert (status["total"], status["results"]) == (2, None)
        echo.letting_go.set()
        status = await done(client, accepted.headers["location"])
    assert [result["id"] for result in status["results"]] == ["a", "b"]
    assert [result["status"] for result in status["results"]] == ["graded", "faulted"]


async def test_a_job_stores_no_verdict_again_and_expires_with_them() -> None:
    broker = FillingBroker()
    async with service(broker) as (client, _):
        await client.post(GRADE, json=body(submission("a")))
        path = f"/v1/jobs/{await _start(client, submission('a'), submission('b', 'fault'))}"
        status = await done(client, path)
        assert [result.get("cached") for result in status["results"]] == [True, None]
        app = client._transport.app  # type: ignore[attr-defined]
        await asyncio.gather(*app.state.api.jobs._watchers.values())
        stored = "".join(broker._notes.get_all().values())
        assert "components" not in stored
        assert status["results"][1]["fault"]["message"] in stored
        assert (await client.get(path)).json() == status
        broker._results = type(broker._results)()
        is_problem(await client.get(path), 404)


async def test_a_verdict_that_expires_before_its_job_ends_is_not_lost() -> None:
    broker = MemoryBroker()
    async with service(broker) as (client, echo):
        path = f"/v1/jobs/{await _start(client, submission('a'), submission('b', 'hold'))}"
        await echo.holding.wait()
        while (await client.get(path)).json()["done"] < 1:  # noqa: ASYNC110  (over HTTP)
            await asyncio.sleep(0.01)
        broker._results = type(broker._results)()
        echo.letting_go.set()
        status = await done(client, path)
        assert [result["id"] for result in status["results"]] == ["a", "b"]
        assert [result["status"] for result in status["results"]] == ["graded", "graded"]


async def test_a_key_with_too_many_unfinished_jobs_is_told_so() -> None:
    broker = MemoryBroker(BrokerSettings(max_note_bytes=2 * MIN_NOTE_BYTES))
    async with service(broker) as (client, _):
        for name in "ab":
            await _start(client, submission(name))
        refused = await client.post("/v1/jobs/ocaml", json=body(submission("c")))
        assert "jobs of this API key" in is_problem(refused, 429)["detail"]
        assert (await client.post(GRADE, json=body(submission("c")))).status_code == 200


async def test_any_api_process_answers_for_a_job() -> None:
    broker = MemoryBroker()
    async with service(broker) as (first, _), service(broker, worker=False) as (second, _):
        accepted = await first.post("/v1/jobs/ocaml", json=body(submission("a")))
        status = await done(second, accepted.headers["location"])
    assert status["results"][0]["reward"] == 1.0


async def test_a_job_of_a_process_that_died_still_gets_its_verdicts() -> None:
    broker = MemoryBroker()
    async with service(broker, worker=False) as (_, echo), echo.working():
        async with service(broker, worker=False) as (dying, _):
            accepted = await dying.post("/v1/jobs/ocaml", json=body(submission("a", "hold")))
            await echo.holding.wait()
        echo.letting_go.set()
        async with service(broker, worker=False) as (other, _):
            status = await done(other, accepted.headers["location"])
    assert status["results"][0]["status"] == "graded"


async def test_an_empty_job_is_done() -> None:
    async with service() as (client, _):
        accepted = await client.post("/v1/jobs/ocaml", json={"submissions": []})
        status = await done(client, accepted.headers["location"])
    assert (status["results"], status["total"]) == ([], 0)


@pytest.mark.parametrize("job_id", ["x", "a" * 32, "..%2f..%2fetc", "%00", "a" * 5000])
async def test_an_unknown_job_is_a_404(job_id: str) -> None:
    async with service() as (client, _):
        is_problem(await client.get(f"/v1/jobs/{job_id}"), 404)
        is_problem(await client.delete(f"/v1/jobs/{job_id}"), 404)


async def test_a_cancelled_job_keeps_its_verdicts_and_ends_the_rest_whichever_api_is_asked() -> (
    None
):
    broker = MemoryBroker()
    async with service(broker) as (first, echo), service(broker, worker=False) as (second, _):
        await first.post(GRADE, json=body(submission("a")))
        for client in (first, second):
            accepted = await first.post(
                "/v1/jobs/ocaml", json=body(submission("a"), submission("b", "hold"))
            )
            await echo.holding.wait()
            deleted = await client.delete(accepted.headers["location"])
            assert deleted.status_code == 200
            status = deleted.json()
            assert (status["status"], status["done"], status["total"]) == ("done", 2, 2)
            kept, ended = status["results"]
            assert (kept["id"], kept["status"]) == ("a", "graded")
            assert (ended["id"], ended["fault"]["kind"], ended["fault"]["retryable"]) == (
                "b",
                "queue",
                False,
            )
            async with asyncio.timeout(20):
                while any(job.runs for job in await broker.list_unfinished("ocaml")):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        echo.letting_go.set()
        await done(
            first, f"/v1/jobs/{await _start(first, submission('b', 'hold'))}"
        )  # it ends with a verdict now
        for api in (first, second):
            for again in (
                await api.delete(accepted.headers["location"]),
                await api.get(accepted.headers["location"]),
            ):
                assert again.json() == status


async def _start(client: httpx.AsyncClient, *submissions: Any) -> str:
    return str((await client.post("/v1/jobs/ocaml", json=body(*submissions))).json()["id"])


async def test_cancelling_a_job_that_is_done_changes_nothing() -> None:
    async with service() as (client, _):
        path = f"/v1/jobs/{await _start(client, submission('a'), submission('b', 'fault'))}"
        status = await done(client, path)
        assert (await client.delete(path)).json() == status


async def test_cancelling_ends_no_job_that_another_request_waits_for() -> None:
    async with service() as (client, echo):
        accepted = await client.post("/v1/jobs/ocaml", json=body(submission("a", "hold")))
        await echo.holding.wait()
        headers = {"Gradus-Run": "other"}
        asking = asyncio.create_task(
            client.post(GRADE, json=body(submission("b", "hold")), headers=headers)
        )
        while len((await echo.broker.list_unfinished("ocaml"))[0].runs) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await client.delete(accepted.headers["location"])
        echo.letting_go.set()
        assert (await asking).json()["results"][0]["status"] == "graded"
    assert echo.graded["hold"] == 1


# --------------------------------------------------------------------------------------- bad input


def raw(**changes: Any) -> bytes:
    return json.dumps(body(submission("a", **changes))).encode()


def with_task(**task: Any) -> bytes:
    return raw(task=task)


def with_context(**team_context: Any) -> bytes:
    task = {"references": ["r"], "team_context": team_context}
    return json.dumps({"submissions": [{"id": "a", "completion": "x", "task": task}]}).encode()


DEEP = b'{"submissions": ' + b"[" * 100_000
LONG = "x" * (MAX_TEXT_CHARS + 1)
GOOD = raw()

BAD_BODIES: dict[str, tuple[int, bytes, str]] = {
    "nothing": (400, b"", "JSON"),
    "no json": (400, b"submissions=1", "JSON"),
    "cut off": (400, GOOD[:-1], "JSON"),
    "two documents": (400, GOOD + GOOD, "JSON"),
    "not utf-8": (400, GOOD.replace(b"reward 1", b"reward \xff"), "JSON"),
    "utf-16": (400, GOOD.decode().encode("utf-16"), "JSON"),
    "lone surrogate": (400, raw(completion="\ud800"), "JSON"),
    "nested too deeply": (400, DEEP, "nested deeper than 100 levels"),
    "nan in team_context": (400, with_context(a=float("nan")), "NaN"),
    "a name twice": (400, GOOD.replace(b'"id"', b'"id": "b", "id"'), "twice"),
    "a name twice in team_context": (400, with_context(a=1, b=2).replace(b'"b"', b'"a"'), "twice"),
    "overflowing in team_context": (422, with_context(a=7).replace(b"7", b"1e400"), "out of range"),
    "deadline true": (422, json.dumps(body(deadline_s=True)).encode(), "deadline_s"),
    "deadline a text": (422, json.dumps(body(deadline_s="5")).encode(), "deadline_s"),
    "an array": (422, b"[]", "object"),
    "null": (422, b"null", "object"),
    "no submissions": (422, b"{}", "submissions"),
    "submissions null": (422, b'{"submissions": null}', "submissions"),
    "submissions an object": (422, b'{"submissions": {}}', "submissions"),
    "a submission a string": (422, b'{"submissions": ["x"]}', "submissions.0"),
    "unknown field": (422, json.dumps(body(rubrik="x")).encode(), "rubrik"),
    "unknown field in a submission": (422, raw(answer="x"), "submissions.0.answer"),
    "unknown field in a task": (422, with_task(test="x"), "submissions.0.task.test"),
    "missing id": (
        422,
        b'{"submissions": [{"completion": "", "task": {"tests": "x"}}]}',
        "submissions.0.id",
    ),
    "missing task": (
        422,
        b'{"submissions": [{"id": "a", "completion": ""}]}',
        "submissions.0.task",
    ),
    "task a list": (
        422,
        b'{"submissions": [{"id": "a", "completion": "", "task": []}]}',
        "submissions.0.task",
    ),
    "missing tests": (
        422,
        b'{"submissions": [{"id": "a", "completion": "", "task": {}}]}',
        "submissions.0.task.tests",
    ),
    "empty tests": (422, with_task(tests=""), "submissions.0.task.tests"),
    "tests of white space": (422, with_task(tests=" \n\t"), "white space"),
    "rust tests of white space": (422, with_task(tests=" \n\t"), "white space"),
    "rust without tests and cases": (
        422,
        with_task().replace(HIDDEN.encode(), b""),
        "submissions.0.task.tests",
    ),
    "empty id": (422, json.dumps(body(submission(""))).encode(), "submissions.0.id"),
    "long id": (422, json.dumps(body(submission("i" * 257))).encode(), "submissions.0.id"),
    "duplicate ids": (
        422,
        json.dumps(body(submission("a"), submission("b"), submission("a"))).encode(),
        "'a'",
    ),
    "id a number": (422, json.dumps(body(submission(7))).encode(), "submissions.0.id"),  # type: ignore[arg-type]
    "completion a list": (422, raw(completion=["x"]), "submissions.0.completion"),
    "completion null": (422, raw(completion=None), "submissions.0.completion"),
    "nul in prompt": (422, raw(prompt="a\0b"), "submissions.0.prompt"),
    "nul in tests": (422, with_task(tests="a\0b"), "submissions.0.task.tests"),
    "nul in id": (422, json.dumps(body(submission("a\0b"))).encode(), "submissions.0.id"),
    "module a path": (422, with_task(module="../../etc/passwd"), "submissions.0.task.module"),
    "package an option": (422, with_task(packages=["-ppx evil"]), "submissions.0.task.packages"),
    "file a path": (422, with_task(files={"../x.ml": ""}), "submissions.0.task.files"),
    "framework unknown": (422, with_task(framework="alcotest"), "submissions.0.task.framework"),
    "memory too large": (
        422,
        with_task(limits={"memory_mb": 10**9}),
        "submissions.0.task.limits.memory_mb",
    ),
    "cpu infinite": (422, with_task(limits={"cpu_s": 1e999}), "submissions.0.task.limits.cpu_s"),
    "rubric no name": (422, json.dumps(body(rubric="best one")).encode(), "rubric"),
    "rubric not offered": (
        422,
        json.dumps(body(submission("a"), rubric="ocaml/other@9")).encode(),
        "ocaml/binary@1",
    ),
    "deadline zero": (422, json.dumps(body(deadline_s=0)).encode(), "deadline_s"),
    "deadline negative": (422, json.dumps(body(deadline_s=-1)).encode(), "deadline_s"),
    "deadline too long": (422, json.dumps(body(deadline_s=1e9)).encode(), "deadline_s"),
    "deadline nan": (422, json.dumps(body(deadline_s=float("nan"))).encode(), "deadline_s"),
    "deadline overflowing": (422, b'{"submissions": [], "deadline_s": 1e999}', "deadline_s"),
    "deadline a word": (422, json.dumps(body(deadline_s="soon")).encode(), "deadline_s"),
    "long completion": (413, raw(completion=LONG), "submissions.0.completion"),
    "long tests": (413, with_task(tests=LONG), "submissions.0.task.tests"),
    "too many": (
        413,
        json.dumps(body(*(submission(str(i)) for i in range(MAX_BATCH + 1)))).encode(),
        "submissions",
    ),
    "body too large": (413, GOOD + b" " * 4_000_000, "body"),
}

ON_EVERY_ROUTE = ("no json", "duplicate ids", "too many")
"""One case of each status; the others are posted to one route, since all routes read a body with
the same function."""


@pytest.mark.parametrize("case", BAD_BODIES)
async def test_bad_input_is_a_problem_that_says_where_and_nothing_is_queued(case: str) -> None:
    status, content, named = BAD_BODIES[case]
    broker = MemoryBroker()
    grader = "rust" if "rust" in case else "ocaml"
    if "team_context" in case:
        grader = "story"
    routes = (f"/v1/grade/{grader}", f"/v1/grade/{grader}/stream", f"/v1/jobs/{grader}")
    async with service(broker, worker=False, max_body_bytes=4_000_000) as (client, _):
        await broker.heartbeat("busy", INFO.model_copy(update={"name": grader}), 600)
        for route in routes if case in ON_EVERY_ROUTE else routes[:1]:
            response = await client.post(
                route, content=content, headers={"content-type": "application/json"}
            )
            problem = is_problem(response, status)
            assert named in problem["detail"]
            assert len(response.content) < 10_000
        assert await broker.depth(grader) == 0


async def test_a_hostile_field_name_is_repeated_short_and_printable() -> None:
    name = "\u202e\x1b[2J" + "n" * 100_000
    async with service() as (client, _):
        problem = is_problem(await client.post(GRADE, json={"submissions": [], name: 1}), 422)
    assert len(problem["detail"]) < 300
    assert problem["errors"][0]["field"].isprintable()


async def test_of_many_mistakes_the_first_are_listed() -> None:
    async with service() as (client, _):
        problem = is_problem(await client.post(GRADE, json={"submissions": [{}] * 1000}), 422)
    assert len(problem["errors"]) == 20
    assert problem["detail"].endswith("and more")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_another_content_type_is_a_415(headers: dict[str, str]) -> None:
    async with service() as (client, _):
        is_problem(await client.post(GRADE, content=GOOD, headers=headers), 415)


async def test_a_charset_beside_the_content_type_is_accepted() -> None:
    async with service() as (client, _):
        headers = {"content-type": "Application/JSON; charset=utf-8"}
        assert (await client.post(GRADE, content=GOOD, headers=headers)).status_code == 200


@pytest.mark.parametrize("name", ["haskell", "OCAML", "..", "%00", "ocaml%2f..", "x" * 3000])
async def test_an_unknown_grader_is_a_404_that_lists_those_there_are(name: str) -> None:
    async with service() as (client, _):
        problem = is_problem(await client.post(f"/v1/jobs/{name}", json=body()), 404)
    assert len(problem["detail"]) < 200
    if name.isalpha():
        assert "ocaml, rust, story, program, preference" in problem["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2", 404),
        ("GET", GRADE, 405),
        ("PUT", GRADE, 405),
        ("POST", "/openapi.json", 405),
        ("PUT", "/docs", 405),
    ],
)
async def test_wrong_paths_and_methods_are_problems(method: str, path: str, status: int) -> None:
    async with service() as (client, _):
        is_problem(await client.request(method, path), status)


async def test_a_wrong_method_is_told_every_right_one_and_is_no_label() -> None:
    async with service() as (client, _):
        allowed = (await client.put("/v1/jobs/ocaml")).headers.get_list("allow")
        assert allowed == ["DELETE, GET, POST"]
        assert (await client.get(GRADE)).headers.get_list("allow") == ["POST"]
        await client.request("EVIL", GRADE)
        assert "EVIL" not in (await client.get("/metrics")).text


@pytest.mark.parametrize("told", [True, False])
def test_a_body_over_the_limit_is_refused_while_it_is_read(told: bool) -> None:
    def endless() -> Any:
        for _ in range(1000):
            yield b" " * 1000

    with Service(max_body_bytes=100_000).running() as here:
        response = httpx.post(
            f"{here.url}{GRADE}",
            content=b" " * 200_000 if told else endless(),
            headers={"content-type": "application/json"},
        )
    is_problem(response, 413)


async def test_a_body_that_does_not_come_is_a_408() -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(600)

    # ASGITransport hands the body over as it comes, so this is the service's own patience.
    async with service(body_timeout_s=0.05) as (client, _):
        is_problem(
            await client.post(
                GRADE, content=trickle(), headers={"content-type": "application/json"}
            ),
            408,
        )


# ---------------------------------------------------------------------- overload and outages


async def test_a_full_queue_is_a_429_with_retry_after_and_nothing_is_queued() -> None:
    broker = MemoryBroker(BrokerSettings(max_depth=2))
    async with service(broker, worker=False) as (client, _):
        await broker.heartbeat("busy", INFO, 600)
        response = await client.post(
            GRADE, json=body(*(submission(f"s{i}", f"reward {i}") for i in range(3)))
        )
        assert await broker.depth("ocaml") == 0
        text = (await client.get("/metrics")).text
    assert "reserved for this run" in is_problem(response, 429)["detail"]
    assert response.headers["retry-after"] == "5"
    assert 'gradus_api_refusals_total{bound="run"} 1.0' in text
    assert 'gradus_api_refusals_total{bound="memory"} 0.0' in text


async def test_large_requests_are_bounded_together_and_do_not_hold_up_others() -> None:
    large = body(*(submission(f"s{i}", f"reward 1 {i} " + "x" * 4000) for i in range(1000)))
    async with service(max_bytes_in_flight=12 * 2**20) as (client, _):
        app = client._transport.app  # type: ignore[attr-defined]
        responses = await asyncio.gather(*(client.post(GRADE, json=large) for _ in range(6)))
        assert Counter(response.status_code for response in responses) == {200: 2, 429: 4}
        assert {
            response.headers["retry-after"] for response in responses if response.status_code == 429
        } == {"5"}
        del responses
        assert (await client.post(GRADE, json=large)).status_code == 200
        text = (await client.get("/metrics")).text
        assert 'gradus_api_refusals_total{bound="bytes"} 4.0' in text
        await asyncio.sleep(0)
        assert app.state.api.in_flight.held == 0, "bytes of answered requests still count"
        accepted = await client.post("/v1/jobs/ocaml", json=large)
        assert app.state.api.in_flight.held > 4_000_000, (
            "an asynchronous job holds its bytes until it is done"
        )
        await done(client, accepted.headers["location"])
        async with asyncio.timeout(20):  # its results are stored before its watcher has read all
            while app.state.api.in_flight.held:  # noqa: ASYNC110  (it happens in this process)
                await asyncio.sleep(0)


async def test_a_broker_that_is_away_is_a_503_with_retry_after() -> None:
    broker = AwayBroker()
    async with service(broker, worker=False) as (client, _):
        broker.away = True
        for response in (
            await client.post(GRADE, json=body(submission("a"))),
            await client.get("/readyz"),
            await client.get("/v1/graders"),
        ):
            assert is_problem(response, 503)["detail"] == "the queue is away"
            assert int(response.headers["retry-after"]) >= 1
        assert (await client.get("/healthz")).status_code == 200
        assert "gradus_broker_up 0.0" in (await client.get("/metrics")).text


async def test_while_the_broker_is_slow_to_answer_it_is_asked_once_for_all() -> None:
    class SlowBroker(MemoryBroker):
        n_asked = 0
        answering = asyncio.Event()

        async def graders(self) -> list[Any]:
            self.n_asked += 1
            await self.answering.wait()
            raise QueueFault("the queue is away")

    broker = SlowBroker()
    async with service(broker, worker=False) as (client, _):
        asking = [asyncio.create_task(client.get("/v1/graders")) for _ in range(10)]
        await asyncio.sleep(0.1)
        broker.answering.set()
        for response in await asyncio.gather(*asking):
            is_problem(response, 503)
    assert broker.n_asked == 1


@pytest.mark.parametrize("route", [GRADE, f"{GRADE}/stream"])
async def test_a_broker_that_goes_away_while_somebody_waits(route: str) -> None:
    broker = MemoryBroker()
    async with service(broker) as (client, echo):
        asking = asyncio.create_task(client.post(route, json=body(submission("a", "hold"))))
        await echo.holding.wait()
        await broker.close()
        response = await asking
        echo.letting_go.set()
    if route == GRADE:
        is_problem(response, 503)
    else:
        assert json.loads(response.content)["fault"]["kind"] == "queue"


@pytest.mark.parametrize("route", [pytest.param(GRADE, marks=pytest.mark.slow), f"{GRADE}/stream"])
async def test_a_broker_that_comes_back_before_the_deadline_is_waited_for(route: str) -> None:
    broker = AwayBroker()
    async with service(broker) as (client, echo):
        asking = asyncio.create_task(client.post(route, json=body(submission("a", "hold"))))
        await echo.holding.wait()
        broker.away = True
        await asyncio.sleep(1.5)  # longer than the pause between looks at the workers
        broker.away = False
        echo.letting_go.set()
        response = await asking
    (result,) = response.json()["results"] if route == GRADE else [json.loads(response.content)]
    assert result["status"] == "graded"


@pytest.mark.parametrize("route", [GRADE, pytest.param(f"{GRADE}/stream", marks=pytest.mark.slow)])
async def test_a_broker_that_stays_away_is_waited_for_until_the_deadline(route: str) -> None:
    broker = AwayBroker()
    async with service(broker) as (client, echo):
        asking = asyncio.create_task(
            client.post(route, json=body(submission("a", "hold"), deadline_s=2))
        )
        await echo.holding.wait()
        broker.away = True
        response = await asking
        echo.letting_go.set()
    (result,) = response.json()["results"] if route == GRADE else [json.loads(response.content)]
    assert result["fault"]["kind"] == "queue"
    assert "at the deadline" in result["fault"]["message"]


async def test_a_defect_is_a_500_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenBroker(MemoryBroker):
        async def get_queue_stats(self, grader: str) -> QueueStats:
            raise RuntimeError(HIDDEN)

    async with service(BrokenBroker()) as (client, _):
        is_problem(await client.get("/metrics"), 500)
    logged = " ".join(str(record.__dict__) for record in caplog.records)
    assert "RuntimeError at get_queue_stats" in logged
    assert HIDDEN not in logged


# ---------------------------------------------------------------------- keys, settings


async def test_keys_are_asked_for_where_work_is_done_and_not_by_probes() -> None:
    keys = f"one sha256:{compute_hash('right')} *; two sha256:{compute_hash('other').upper()} *"
    async with service(keys=keys) as (client, _):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic right"}):
            for response in (
                await client.get("/v1/graders", headers=headers),
                await client.post(GRADE, headers=headers),
            ):
                is_problem(response, 401)
                assert response.headers["www-authenticate"] == "Bearer"
        for key in ("right", "other"):
            headers = {"authorization": f"bearer {key}"}
            assert (
                await client.post(GRADE, json=body(submission("a")), headers=headers)
            ).status_code == 200
        assert (await client.get("/healthz")).status_code == 200


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_a_key_asks_only_for_the_graders_it_was_made_for() -> None:
    secret, key = create_key("trainer", ["rust", "story"])
    ocaml_secret, ocaml_key = create_key("other", ["ocaml"])
    async with service(keys=f"{key.line()};{ocaml_key.line()}") as (client, echo):
        for route in (GRADE, f"{GRADE}/stream", "/v1/jobs/ocaml"):
            response = await client.post(route, json=body(submission("a")), headers=bearer(secret))
            assert "it may use: rust, story" in is_problem(response, 403)["detail"]
        assert not echo.graded
        accepted = await client.post(
            "/v1/jobs/ocaml", json=body(submission("a")), headers=bearer(ocaml_secret)
        )
        location = accepted.headers["location"]
        is_problem(await client.get(location, headers=bearer(secret)), 404)
        assert (await client.get(location, headers=bearer(ocaml_secret))).status_code == 200


async def test_keys_come_from_a_file_and_the_log_names_who_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gradus.api")
    secret, key = create_key("trainer-1", [])
    file = tmp_path / "keys"
    file.write_text(f"# who may ask\n\n{key.line()}  # all graders\n")
    async with service(keys_file=file) as (client, _):
        assert (
            await client.post(GRADE, json=body(submission("a")), headers=bearer(secret))
        ).status_code == 200
        is_problem(await client.get("/v1/graders", headers=bearer(secret + "x")), 401)
    logged = str([record.__dict__ for record in caplog.records])
    assert "'key': 'trainer-1'" in logged
    assert secret not in logged + file.read_text()


def keyed(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def test_a_key_that_is_added_or_revoked_counts_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.api.api_keys.RELOAD_S", 0.0)
    monkeypatch.setattr("services.api.authenticate.REFUSAL_S", 0.0)
    file = tmp_path / "keys"
    (first, one) = create_key("one", [])
    (second, other) = create_key("other", [])
    file.write_text(one.line())
    async with service(keys_file=file) as (client, _):

        async def statuses() -> list[int]:
            os.utime(
                file, ns=(0, len(file.read_bytes()))
            )  # a change within the clock's tick counts, too
            return [
                (await client.get("/v1/graders", headers=keyed(secret))).status_code
                for secret in (first, second)
            ]

        assert await statuses() == [200, 401]
        file.write_text(f"{one.line()}\n{other.line()}\n")
        assert await statuses() == [200, 200]
        file.write_text(f"{other.line()} # alone now")
        assert await statuses() == [401, 200]
        file.write_text("")
        assert await statuses() == [401, 200], "an empty file must not open the service"


async def test_the_limits_of_a_key_are_held(tmp_path: Path) -> None:
    made = {name: create_key(name, []) for name in ("old", "few", "trains")}
    limits = {
        "old": "expires=2020-01-31",
        "few": "per_minute=3",
        "trains": "priority=training expires=2999-01-01",
    }
    file = tmp_path / "keys"
    file.write_text("".join(f"{key.line()} {limits[name]}\n" for name, (_, key) in made.items()))
    assert [key.line() for key in parse_keys(file.read_text(), "keys")] == [
        f"{made['old'][1].line()} expires=2020-01-31",
        f"{made['few'][1].line()} per_minute=3",
        f"{made['trains'][1].line()} expires=2999-01-01 priority=training",
    ]
    async with service(keys_file=file) as (client, _):

        async def post(name: str, n_submissions: int = 1, **headers: str) -> httpx.Response:
            sent = body(*(submission(f"s{n}") for n in range(n_submissions)))
            return await client.post(GRADE, json=sent, headers=keyed(made[name][0]) | headers)

        assert "expired" in is_problem(await post("old"), 401)["detail"]
        assert (await post("few", 2)).status_code == 200
        refused = await post("few", 2)
        is_problem(refused, 429)
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        text = (await client.get("/metrics")).text
        assert 'gradus_api_refusals_total{bound="key"} 1.0' in text
        assert (await post("few")).status_code == 200
        assert (await post("trains")).status_code == 200
        is_problem(await post("trains", **{"gradus-priority": "evaluation"}), 403)


async def test_only_allowed_names_reach_the_service() -> None:
    async with service(allowed_hosts=("grade.example", "127.0.0.1")) as (client, _):
        for host, status in (
            ("grade.example", 200), ("GRADE.example:8000", 200), ("127.0.0.1:8000", 200),
            ("attacker.example", 403), ("", 403), ("grade.example.attacker.example", 403),
        ):  # fmt: skip
            assert (await client.get("/healthz", headers={"host": host})).status_code == status


async def test_a_local_service_without_keys_answers_under_this_machines_names_only() -> None:
    stop = asyncio.Event()
    ready = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(MemoryBroker(), "127.0.0.1", 0, stop=stop, on_ready=ready.set_result)
    )
    url = await ready
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/healthz", headers={"host": "localhost:1"})).status_code == 200
        is_problem(await client.get("/v1/graders", headers={"host": "rebound.example"}), 403)
    stop.set()
    await serving


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nobody",
        "trainer gradus_a-key-in-the-clear *",
        f"trainer sha256:{compute_hash('k')}",
        f"trainer sha256:{compute_hash('k')} ocaml,Cobol",
        f"trainer sha256:{compute_hash('k')[:-1]} ocaml",
        f"one sha256:{compute_hash('k')} *\none sha256:{compute_hash('l')} *",
        f"one sha256:{compute_hash('k')} *\ntwo sha256:{compute_hash('k')} ocaml",
    ],
)
def test_a_file_of_keys_that_cannot_be_used_starts_no_service(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(Misuse, match="GRADUS_API_KEYS_FILE") as refused:
        create_app(MemoryBroker(), ApiSettings(keys_file=file))
    assert "a-key-in-the-clear" not in str(refused.value)


def test_a_file_of_keys_that_is_not_there_starts_no_service(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="cannot be read"):
        refuse_open_service("127.0.0.1", ApiSettings(keys_file=tmp_path / "none"))


@pytest.mark.parametrize(
    ("host", "settings", "refused"),
    [
        ("127.0.0.1", {}, False),
        ("::1", {}, False),
        ("localhost", {}, False),
        ("0.0.0.0", {}, True),
        ("::", {}, True),
        ("", {}, True),
        ("grader.example", {}, True),
        ("0.0.0.0", {"allow_anonymous": True}, False),
        ("0.0.0.0", {"keys": f"one sha256:{compute_hash('k')} ocaml"}, False),
    ],
)
def test_an_address_that_others_reach_needs_keys(
    host: str, settings: dict[str, Any], refused: bool
) -> None:
    if not refused:
        refuse_open_service(host, ApiSettings(**settings))
        return
    with pytest.raises(Misuse, match="GRADUS_API_ALLOW_ANONYMOUS=true"):
        refuse_open_service(host, ApiSettings(**settings))


def test_a_misspelt_environment_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADUS_API_MAX_BODY_BYTE", "1")
    with pytest.raises(ValueError, match="did you mean GRADUS_API_MAX_BODY_BYTES"):
        ApiSettings()


def test_the_variable_of_clients_may_stand_beside_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRADUS_API_KEY", "a client's")
    assert ApiSettings().keys == ""


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADUS_API_KEEP_ALIVE_S", "9")
    monkeypatch.setenv("GRADUS_API_REQUIRED_GRADERS", "ocaml, rust")
    monkeypatch.setenv("GRADUS_API_NEMO_GYM_PORTS", "ocaml=8101")
    settings = ApiSettings()
    assert settings.keep_alive_s == 9
    assert settings.required_graders == ("ocaml", "rust")
    assert settings.nemo_gym_ports == (("ocaml", 8101),)


# ---------------------------------------------------------------------- operations


async def test_live_graders_are_listed() -> None:
    async with service() as (client, _):
        listed = (await client.get("/v1/graders")).json()["graders"]
        ready = (await client.get("/readyz")).json()
    assert [(info["name"], info["rubrics"]) for info in listed] == [("ocaml", list(INFO.rubrics))]
    assert ready == {"status": "ready", "graders": ["ocaml"]}


async def test_metrics_count_results_and_faults_and_take_no_label_from_a_caller() -> None:
    async with service() as (client, _):
        await client.post(GRADE, json=body(submission("a"), submission("b", "fault")))
        await client.post(GRADE, json=body(submission("a")))
        await client.get("/nowhere/somebody-s-text")
        text = (await client.get("/metrics")).text
    for line in (
        'gradus_api_requests_total{method="POST",route="/v1/grade/{grader}",status="200"} 2.0',
        'gradus_api_requests_total{method="GET",route="unmatched",status="404"} 1.0',
        'gradus_api_results_total{grader="ocaml",status="graded"} 2.0',
        'gradus_api_cached_results_total{grader="ocaml"} 1.0',
        'gradus_api_queue_wait_seconds_count{grader="ocaml"} 1.0',
        'gradus_api_faults_total{grader="ocaml",kind="sandbox"} 1.0',
        'gradus_queue_depth{grader="ocaml"} 0.0',
        'gradus_workers{grader="ocaml"} 1.0',
    ):
        assert line in text
    assert "somebody" not in text


async def test_metrics_tell_rewards_stages_and_flags_by_grader() -> None:
    async with service() as (client, _):
        await client.post(
            GRADE,
            json=body(submission("a"), submission("b", "reward 0.25"), submission("c", "flagged")),
        )
        text = (await client.get("/metrics")).text
    for line in (
        'gradus_api_verdicts_total{grader="ocaml",stage="tests"} 3.0',
        'gradus_api_flags_total{flag="odd",grader="ocaml"} 1.0',
        'gradus_api_reward_bucket{grader="ocaml",le="0.3"} 1.0',
        'gradus_api_reward_bucket{grader="ocaml",le="0.999"} 1.0',
        'gradus_api_reward_sum{grader="ocaml"} 2.25',
        'gradus_api_grade_seconds_count{grader="ocaml",stage="tests"} 3.0',
        'gradus_api_grade_seconds_bucket{grader="ocaml",le="0.002",stage="tests"} 3.0',
        'gradus_api_cpu_seconds_total{grader="ocaml"} 0.003',
        'gradus_api_cpu_seconds_total{grader="rust"} 0.0',
    ):
        assert line in text


async def test_what_came_from_the_cache_cost_nothing_again() -> None:
    async with service() as (client, _):
        for _ in range(3):
            await client.post(GRADE, json=body(submission("a")))
        text = (await client.get("/metrics")).text
    assert 'gradus_api_cpu_seconds_total{grader="ocaml"} 0.001\n' in text
    assert 'gradus_api_grade_seconds_count{grader="ocaml",stage="tests"} 1.0\n' in text
    assert 'gradus_api_verdicts_total{grader="ocaml",stage="tests"} 3.0\n' in text


async def test_metrics_tell_what_is_queued_running_and_waited_for() -> None:
    async with service() as (client, echo):
        await client.post(
            "/v1/jobs/ocaml", json=body(submission("a", "hold"), submission("b", "hold b"))
        )
        await echo.holding.wait()
        text = (await client.get("/metrics")).text
        assert 'gradus_queue_jobs{grader="ocaml",state="running"} 2.0' in text
        assert 'gradus_queue_jobs{grader="ocaml",state="queued"} 0.0' in text
        assert 'gradus_api_waiting{grader="ocaml"} 2.0' in text
        assert 'gradus_api_oldest_wait_seconds{grader="rust"} 0.0\n' in text
        assert 'gradus_api_oldest_wait_seconds{grader="ocaml"} 0.0\n' not in text


async def test_a_service_with_required_graders_is_ready_when_each_of_them_lives() -> None:
    async with service(required_graders="ocaml, rust") as (client, _):
        assert "for: rust" in is_problem(await client.get("/readyz"), 503)["detail"]
    async with service(required_graders="ocaml") as (client, _):
        assert (await client.get("/readyz")).status_code == 200


async def test_a_service_is_ready_whatever_its_graders_do_and_a_stall_is_a_metric() -> None:
    async with service(worker=False) as (client, _):
        assert (await client.get("/readyz")).json() == {"status": "ready", "graders": []}
    async with service() as (client, echo):
        accepted = await client.post("/v1/jobs/ocaml", json=body(submission("a", "hold")))
        await echo.holding.wait()
        await asyncio.sleep(0.1)
        assert (await client.get("/readyz")).status_code == 200
        [line] = [
            line
            for line in (await client.get("/metrics")).text.splitlines()
            if line.startswith('gradus_api_stalled_seconds{grader="ocaml"}')
        ]
        assert float(line.split()[-1]) >= 0.1
        echo.letting_go.set()
        await done(client, accepted.headers["location"])


async def test_a_request_is_logged_in_one_line_without_its_texts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="gradus.api")
    async with service() as (client, _):
        await client.post(GRADE, json=body(submission("a")))
    (record,) = [record for record in caplog.records if record.name == "gradus.api"]
    fields = record.__dict__["fields"]
    assert fields.pop("ms") >= 0
    assert re.fullmatch("[0-9a-f]{32}", fields.pop("request"))
    assert fields == {
        "method": "POST",
        "route": "/v1/grade/{grader}",
        "status": 200,
        "grader": "ocaml",
        "n_submissions": 1,
    }


@pytest.mark.parametrize("sent", ["step-4.rank_2", "", "two words", "a" * 65])
@pytest.mark.parametrize("route", [GRADE, f"{GRADE}/stream", "/v1/unknown"])
async def test_a_response_and_its_log_line_have_the_id_of_the_request(
    route: str, sent: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gradus.api")
    async with service() as (client, _):
        answer = await client.post(
            route, json=body(submission("a")), headers={"X-Request-ID": sent}
        )
    (record,) = [record for record in caplog.records if record.name == "gradus.api"]
    request_id = record.__dict__["fields"]["request"]
    assert answer.headers["x-request-id"] == request_id
    if sent == "step-4.rank_2":
        assert request_id == sent
    else:
        assert re.fullmatch("[0-9a-f]{32}", request_id)


async def test_openapi_shows_an_example_of_every_answer_and_each_is_one() -> None:
    models = {200: (GradeResponse, JobStatus, GraderList, GraderDescription), 202: (Accepted,)}
    async with service() as (client, _):
        document = (await client.get("/openapi.json")).json()
    n_shown = 0
    for path, operations in document["paths"].items():
        for operation in operations.values() if path.startswith("/v1/") else ():
            for status, response in operation["responses"].items():
                [(kind, content)] = response["content"].items()
                n_shown += 1
                if kind == "application/x-ndjson":
                    lines = [line for line in content["example"].splitlines() if line]
                    assert [RESULT.validate_json(line).status for line in lines] == [
                        "graded",
                        "faulted",
                    ]
                elif kind == "application/problem+json":
                    assert str(Problem.model_validate(content["example"]).status)[0] == status[0]
                else:
                    model = content["schema"]["$ref"].rpartition("/")[2]
                    {one.__name__: one for one in models[int(status)]}[model].model_validate(
                        content["example"]
                    )
    assert n_shown == 7 * 5


async def test_openapi_shows_an_example_for_every_grader_and_every_reference_resolves() -> None:
    async with service() as (client, _):
        text = (await client.get("/openapi.json")).text
    document = json.loads(text)
    content = document["paths"]["/v1/grade/{grader}"]["post"]["requestBody"]["content"][
        "application/json"
    ]
    assert set(content["examples"]) == {"ocaml", "rust", "story", "program", "preference"}
    schemas = document["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= set(schemas)
    assert set(re.findall(r'"#/(?!components/schemas/)', text)) == set()
