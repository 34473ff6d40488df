"""The client: against the real service, over ASGI or a socket, and against small servers that
misbehave on purpose."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from gradus.client import MAX_DEFECTS, RewardClient
from gradus.contract import SUBMISSIONS, Faulted, Graded
from gradus.errors import FaultKind, Misuse, QueueFault, TooLarge, UnknownGrader
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker import BrokerSettings
from services.broker.memory import MemoryBroker
from tests.fake_grader import INFO, SETTINGS, EchoWorker, Service, submission

NOBODY = "http://127.0.0.1:1"
"""Nothing ever listens there."""


@asynccontextmanager
async def over_asgi(**options: Any) -> AsyncIterator[tuple[RewardClient, EchoWorker]]:
    broker = MemoryBroker()
    app = create_app(broker, ApiSettings(**SETTINGS))
    async with EchoWorker(broker).working() as worker:
        yield RewardClient(transport=httpx.ASGITransport(app), **options), worker


def rewards_of(results: list[Graded | Faulted]) -> list[float | None]:
    return [result.reward if isinstance(result, Graded) else None for result in results]


def fault_of(result: Graded | Faulted) -> tuple[FaultKind, str]:
    assert isinstance(result, Faulted)
    return result.fault.kind, result.fault.message


Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


@contextmanager
def scripted(*answers: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these answers in turn, the last one for ever; its URL, and what it was
    asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            answers[min(len(asked), len(answers)) - 1](self, asked[-1])

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def status(code: int, text: str = "", **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(text.encode())

    return answer


def problem(code: int, detail: str, **headers: str) -> Answer:
    return status(code, json.dumps({"title": "t", "status": code, "detail": detail}), **headers)


def verdicts(limit: int | None = None) -> Answer:
    """Grades the first `limit` submissions of the request, then ends the stream."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.end_headers()
        for one in body["submissions"][:limit]:
            verdict = {
                "id": one["id"],
                "status": "graded",
                "reward": 1.0,
                "passed": True,
                "stage": "tests",
            }
            rest = {
                "components": {},
                "rubric": "r",
                "grader": "g",
                "toolchain": "t",
                "cpu_ms": 1,
                "wall_ms": 1,
            }
            handler.wfile.write(json.dumps(verdict | rest).encode() + b"\n")

    return answer


def hang_up(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
    handler.connection.close()


def quick(url: str | list[str], **options: Any) -> RewardClient:
    return RewardClient(url, backoff_s=0.001, **options)


# ---------------------------------------------------------------------- what comes back


async def test_results_have_the_order_and_the_length_of_the_submissions_across_batches() -> None:
    async with over_asgi(batch_size=7) as (client, _):
        sent = [submission(f"s{index}", f"reward {index / 100}") for index in range(50)]
        results = await client.grade("ocaml", sent)
    assert [result.id for result in results] == [one["id"] for one in sent]
    assert rewards_of(results) == [index / 100 for index in range(50)]


async def test_submissions_may_be_models_or_mappings() -> None:
    async with over_asgi() as (client, _):
        model = SUBMISSIONS["ocaml"].model_validate(submission("a"))
        assert rewards_of(await client.grade("ocaml", [model, submission("b", "reward 0")])) == [
            1.0,
            0.0,
        ]


async def test_nothing_asked_is_nothing_answered_without_a_service() -> None:
    assert await RewardClient(NOBODY).grade("ocaml", []) == []


async def test_a_fault_of_the_service_is_handed_on_beside_the_verdicts() -> None:
    async with over_asgi() as (client, _):
        results = await client.grade("ocaml", [submission("a"), submission("b", "fault")])
    assert rewards_of(results) == [1.0, None]
    assert fault_of(results[1]) == (FaultKind.SANDBOX, "the box broke")


async def test_on_result_is_called_once_for_each_index() -> None:
    called: dict[int, Graded | Faulted] = {}
    async with over_asgi(batch_size=3) as (client, _):
        sent = [submission(f"s{index}", f"reward {index % 4 / 4}") for index in range(20)]
        results = await client.grade(
            "ocaml", sent, on_result=lambda index, result: called.update({index: result})
        )
    assert [called[index] for index in range(20)] == results


async def test_an_error_of_on_result_is_raised_as_it_is() -> None:
    def fail(index: int, result: Graded | Faulted) -> None:
        raise ArithmeticError(f"of submission {index}")

    async with over_asgi(batch_size=1) as (client, _):
        with pytest.raises(ArithmeticError, match="of submission"):
            await client.grade(
                "ocaml", [submission("a"), submission("b", "reward 0")], on_result=fail
            )


async def test_the_rubric_is_passed_on() -> None:
    async with over_asgi() as (client, _):
        (result,) = await client.grade("ocaml", [submission("a")], rubric="ocaml/binary@1")
    assert isinstance(result, Graded)
    assert result.rubric == "ocaml/binary@1"


def test_texts_with_odd_line_separators_arrive_whole() -> None:
    with Service().running() as here:
        (result,) = asyncio.run(RewardClient(here.url).grade("ocaml", [submission("a")]))
    assert isinstance(result, Graded)
    assert result.diagnostics[0].message == "a line separator\u2028 and a next line\x85"


# ----------------------------------------------------------------------------------------- sharing


async def test_identical_submissions_of_one_call_are_asked_for_once() -> None:
    with scripted(verdicts()) as (url, asked):
        results = await quick(url).grade("ocaml", [submission(f"s{index}") for index in range(10)])
    assert [result.id for result in results] == [f"s{index}" for index in range(10)]
    assert [len(body["submissions"]) for body in asked] == [1]


async def test_identical_submissions_of_concurrent_calls_are_asked_for_once() -> None:
    with scripted(verdicts()) as (url, asked):
        client = quick(url)
        first, second = await asyncio.gather(
            client.grade("ocaml", [submission("a"), submission("b", "reward 0")]),
            client.grade("ocaml", [submission("c")]),
        )
    assert [result.id for result in first] == ["a", "b"]
    assert [result.id for result in second] == ["c"]
    assert sum(len(body["submissions"]) for body in asked) == 2


async def test_who_shares_work_with_a_call_that_gives_up_asks_anew() -> None:
    with Service().running() as here:
        client = RewardClient(here.url)
        async with client:
            short = asyncio.create_task(
                client.grade("ocaml", [submission("a", "hold")], deadline_s=0.3)
            )
            await asyncio.sleep(0)
            long = asyncio.create_task(
                client.grade("ocaml", [submission("b", "hold")], deadline_s=30)
            )
            (late,) = await short
            here.call(here.worker.letting_go.set)
            (graded,) = await long
    assert fault_of(late)[0] is FaultKind.DEADLINE
    assert rewards_of([graded]) == [1.0]


async def test_who_shares_work_with_a_call_that_is_cancelled_asks_anew() -> None:
    with Service().running() as here:
        client = RewardClient(here.url)
        first = asyncio.create_task(client.grade("ocaml", [submission("a", "hold")]))
        await asyncio.sleep(0)
        second = asyncio.create_task(client.grade("ocaml", [submission("b", "hold")]))
        await asyncio.to_thread(wait_for_holding, here)
        first.cancel()
        here.call(here.worker.letting_go.set)
        assert rewards_of(await second) == [1.0]


def wait_for_holding(here: Service) -> None:
    asyncio.run_coroutine_threadsafe(here.worker.holding.wait(), here.loop).result(20)


# ---------------------------------------------------------------------- retries and failover


TROUBLES = (
    problem(429, "full", Retry_After="0"),
    problem(503, "the queue is away", Retry_After="9999"),
    status(502, "<html>bad gateway</html>"),
    status(504),
    hang_up,
    verdicts(0),
)


async def test_troubles_that_pass_are_ridden_out_until_the_deadline() -> None:
    with scripted(*TROUBLES * 6, verdicts()) as (url, asked):
        client = RewardClient(url, backoff_s=1e-6)
        assert rewards_of(await client.grade("ocaml", [submission("a")], deadline_s=600)) == [1.0]
    assert len(asked) == 37


def queue_faults(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.end_headers()
    for one in body["submissions"]:
        report = {"kind": "queue", "message": "the queue does not answer", "retryable": True}
        line = json.dumps({"id": one["id"], "status": "faulted", "fault": report})
        handler.wfile.write(line.encode() + b"\n")


async def test_a_queue_fault_that_comes_as_a_result_is_asked_about_again() -> None:
    with scripted(*[queue_faults] * (MAX_DEFECTS - 1), verdicts()) as (url, asked):
        assert rewards_of(await quick(url).grade("ocaml", [submission("a")])) == [1.0]
    assert len(asked) == MAX_DEFECTS


async def test_a_queue_fault_that_stays_is_the_result_long_before_the_deadline() -> None:
    with scripted(queue_faults) as (url, asked):
        (result,) = await quick(url).grade("ocaml", [submission("a")], deadline_s=600)
    assert len(asked) == MAX_DEFECTS
    kind, message = fault_of(result)
    assert kind is FaultKind.QUEUE
    assert "the queue does not answer" in message


async def test_after_a_broken_stream_only_what_is_missing_is_asked_for_again() -> None:
    with scripted(verdicts(2), verdicts()) as (url, asked):
        results = await quick(url).grade(
            "ocaml", [submission(f"s{i}", f"reward {i}") for i in range(5)]
        )
    assert rewards_of(results) == [1.0] * 5
    first, second = (body["submissions"] for body in asked)
    assert [one["id"] for one in first] == ["s0", "s1", "s2", "s3", "s4"]
    assert [one["id"] for one in second] == ["s2", "s3", "s4"]


async def test_overload_is_ridden_out_for_longer_than_outages() -> None:
    with scripted(*[problem(429, "full", Retry_After="0")] * 20, verdicts()) as (url, asked):
        assert rewards_of(await quick(url, attempts=2).grade("ocaml", [submission("a")])) == [1.0]
    assert len(asked) == 21


async def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    with scripted(problem(429, "the queue is full", Retry_After="1000")) as (url, asked):
        (result,) = await quick(url).grade("ocaml", [submission("a")], deadline_s=60)
    assert len(asked) == 1
    kind, message = fault_of(result)
    assert kind is FaultKind.QUEUE
    assert "the queue is full" in message


async def test_attempts_are_bounded() -> None:
    with scripted(status(503)) as (url, asked):
        (result,) = await quick(url, attempts=3).grade("ocaml", [submission("a")])
    assert fault_of(result)[0] is FaultKind.QUEUE
    assert len(asked) == 3


async def test_without_a_service_the_fault_names_the_url_and_what_to_start() -> None:
    results = await quick(NOBODY, attempts=2).grade(
        "ocaml", [submission("a"), submission("b", "reward 0")]
    )
    for result, submission_id in zip(results, "ab", strict=True):
        kind, message = fault_of(result)
        assert kind is FaultKind.QUEUE
        assert f"ocaml submission {submission_id!r}" in message
        assert NOBODY in message
        assert "start one with `gradus serve`" in message


async def test_a_service_that_is_away_is_passed_over() -> None:
    with scripted(verdicts()) as (url, asked):
        client = quick([NOBODY, url], batch_size=1)
        results = await client.grade(
            "ocaml", [submission(f"s{index}", f"reward {index}") for index in range(6)]
        )
    assert rewards_of(results) == [1.0] * 6
    assert len(asked) == 6


async def test_several_services_take_turns() -> None:
    with scripted(verdicts()) as (one, asked_one), scripted(verdicts()) as (other, asked_other):
        client = quick([one, other], batch_size=1)
        await client.grade(
            "ocaml", [submission(f"s{index}", f"reward {index}") for index in range(6)]
        )
    assert (len(asked_one), len(asked_other)) == (3, 3)


async def test_a_deadline_is_for_the_whole_call_and_keeps_what_was_ready() -> None:
    with Service().running() as here:
        client = RewardClient(here.url, batch_size=1, max_connections=1)
        sent = [submission("quick"), submission("slow", "hold"), submission("never", "reward 0.5")]
        results = await client.grade("ocaml", sent, deadline_s=1.5)
    assert rewards_of(results)[0] == 1.0
    assert fault_of(results[1])[0] is FaultKind.DEADLINE


async def test_a_service_that_never_answers_is_left_at_the_deadline() -> None:
    released = threading.Event()
    with scripted(lambda handler, body: (released.wait(20), None)[1]) as (url, _):
        (result,) = await quick([url, NOBODY]).grade("ocaml", [submission("a")], deadline_s=0.2)
        released.set()
    kind, message = fault_of(result)
    assert kind is FaultKind.DEADLINE
    assert f"ocaml submission 'a': no result from {url} within 0.2 s" in message


@pytest.mark.parametrize(
    "answer", [status(200, "<html>welcome</html>\n"), status(200, "{}\n"), status(501, "oops")]
)
async def test_an_answer_that_is_none_of_ours_is_an_internal_fault(answer: Answer) -> None:
    with scripted(answer) as (url, asked):
        (result,) = await quick(url).grade("ocaml", [submission("a")])
    assert fault_of(result)[0] is FaultKind.INTERNAL
    assert len(asked) == 1


async def test_a_defect_that_passes_is_ridden_out() -> None:
    with scripted(status(500, "oops"), status(500, "oops"), verdicts()) as (url, asked):
        assert rewards_of(await quick(url).grade("ocaml", [submission("a")])) == [1.0]
    assert len(asked) == 3


async def test_a_defect_that_stays_is_an_internal_fault_long_before_the_deadline() -> None:
    with scripted(status(500, "oops")) as (url, asked):
        (result,) = await RewardClient(url, backoff_s=1e-6).grade(
            "ocaml", [submission("a")], deadline_s=600
        )
    kind, message = fault_of(result)
    assert kind is FaultKind.INTERNAL
    assert f"{url} answered 500" in message
    assert len(asked) == MAX_DEFECTS


async def test_a_service_with_a_defect_is_passed_over() -> None:
    with scripted(status(500, "oops")) as (broken, asked), scripted(verdicts()) as (well, _):
        client = quick([broken, well], batch_size=1)
        results = await client.grade(
            "ocaml", [submission(f"s{i}", f"reward {i}") for i in range(6)]
        )
    assert rewards_of(results) == [1.0] * 6
    assert len(asked) == 3


async def test_a_full_service_is_asked_again_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.api.problems.RETRY_AFTER_S", 1)
    with Service(BrokerSettings(max_depth=1)).running() as here:
        client = RewardClient(here.url, batch_size=1)
        results = await client.grade(
            "ocaml", [submission(f"s{i}", f"reward {i / 4}") for i in range(4)]
        )
    assert rewards_of(results) == [0.0, 0.25, 0.5, 0.75]


def test_a_cancelled_call_gives_its_jobs_up() -> None:
    async def ask_and_leave(here: Service) -> None:
        asking = asyncio.create_task(RewardClient(here.url).grade("ocaml", [submission("a")]))
        while not await depth(here):  # noqa: ASYNC110 - the broker tells nobody who only looks
            await asyncio.sleep(0.01)
        asking.cancel()
        while await depth(here):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def depth(here: Service) -> int:
        found = asyncio.run_coroutine_threadsafe(here.broker.depth("ocaml"), here.loop)
        return await asyncio.wrap_future(found)

    with Service(worker=False).running() as here:
        asyncio.run_coroutine_threadsafe(
            here.broker.heartbeat("busy", INFO, 600), here.loop
        ).result(20)
        asyncio.run(ask_and_leave(here))


# ------------------------------------------------------------------------------------------ misuse


async def test_misuse_found_by_the_service_raises_with_its_detail() -> None:
    async with over_asgi() as (client, _):
        with pytest.raises(Misuse, match="it offers: ocaml/binary@1, ocaml/graduated@1"):
            await client.grade("ocaml", [submission("a")], rubric="ocaml/unheard_of@1")


async def test_a_refused_key_raises() -> None:
    with Service(keys=f"one sha256:{'0' * 64} *").running() as here:
        with pytest.raises(Misuse, match="Authorization: Bearer"):
            await RewardClient(here.url, api_key="wrong").grade("ocaml", [submission("a")])
        with pytest.raises(Misuse, match="Authorization: Bearer"):
            await RewardClient(here.url).graders()


async def test_a_batch_that_the_service_finds_too_large_raises_too_large() -> None:
    with (
        scripted(problem(413, "the body is larger than 1 byte")) as (url, _),
        pytest.raises(TooLarge, match="1 byte"),
    ):
        await quick(url).grade("ocaml", [submission("a")])


BAD_CALLS: dict[str, tuple[str, list[Any], dict[str, Any], str]] = {
    "unknown grader": ("Haskell", [], {}, "ocaml, rust, story"),
    "missing tests": (
        "ocaml",
        [submission("a"), {"id": "b", "completion": "", "task": {}}],
        {},
        "submissions.1: task",
    ),
    "another grader's": ("story", [submission("a")], {}, "submissions.0: task.references"),
    "duplicate id": (
        "ocaml",
        [submission("a"), submission("a", "reward 0")],
        {},
        "'a' occurs twice",
    ),
    "lone surrogate": ("ocaml", [submission("a", "\ud800")], {}, "submissions.0: completion"),
    "nul in a task": ("ocaml", [submission("a") | {"task": {"tests": "\0"}}], {}, "NUL"),
    "deadline": ("ocaml", [submission("a")], {"deadline_s": float("nan")}, "deadline_s"),
    "no json": (
        "story",
        [
            {
                "id": "a",
                "completion": "",
                "task": {"references": ["r"], "team_context": {"x": "\ud800"}},
            }
        ],
        {},
        "cannot be written as JSON",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
async def test_misuse_raises_before_anything_is_sent(case: str) -> None:
    grader, submissions, options, named = BAD_CALLS[case]
    with pytest.raises(Misuse, match=named):
        await RewardClient(NOBODY).grade(grader, submissions, **options)


async def test_a_text_over_the_limit_raises_too_large() -> None:
    with pytest.raises(TooLarge):
        await RewardClient(NOBODY).grade("ocaml", [submission("a", "x" * 1_000_001)])


@pytest.mark.parametrize(
    "urls", [[], "", "localhost:8000", "ftp://somewhere", "redis://somewhere", ["http://a", "nope"]]
)
def test_a_url_that_cannot_work_raises(urls: Any) -> None:
    with pytest.raises(Misuse):
        RewardClient(urls)


# ---------------------------------------------------------------------- loops and readiness


def test_one_client_serves_several_event_loops_one_after_the_other() -> None:
    with Service().running() as here:
        client = RewardClient(here.url)

        async def with_block(submission_id: str) -> list[Graded | Faulted]:
            async with client:
                return await client.grade("ocaml", [submission(submission_id)])

        for submission_id in "abc":
            assert rewards_of(asyncio.run(client.grade("ocaml", [submission(submission_id)]))) == [
                1.0
            ]
            assert rewards_of(asyncio.run(with_block(submission_id))) == [1.0]


def test_one_client_serves_event_loops_in_several_threads_at_once() -> None:
    found: list[float | None] = []
    with Service().running() as here:
        client = RewardClient(here.url)

        def ask(thread: int) -> None:
            sent = [submission(f"s{index}", f"reward {index / 10}") for index in range(10)]
            found.extend(rewards_of(asyncio.run(client.grade("ocaml", sent))))

        threads = [threading.Thread(target=ask, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(str(reward) for reward in found) == sorted(
        str(index / 10) for index in range(10) for _ in range(4)
    )


async def test_graders_are_listed() -> None:
    async with over_asgi() as (client, _):
        assert await client.graders() == (INFO,)


async def test_a_grader_that_is_not_running_has_no_description_and_an_unheard_of_one_is_unknown() -> (  # noqa: E501
    None
):
    async with over_asgi() as (client, _):
        assert await client.description("rust") is None
        assert await client.known("rust") == "rust"
        with pytest.raises(UnknownGrader, match="there is no grader 'cobol'"):
            await client.known("cobol")


async def test_graders_of_nobody_are_a_queue_fault() -> None:
    with pytest.raises(QueueFault, match="start one with `gradus serve`"):
        await RewardClient(NOBODY).graders()


async def test_wait_ready_returns_as_soon_as_a_worker_is_alive() -> None:
    broker = MemoryBroker()
    client = RewardClient(
        transport=httpx.ASGITransport(create_app(broker, ApiSettings(**SETTINGS)))
    )
    waiting: Awaitable[Any] = asyncio.create_task(client.wait_ready("ocaml"))
    await asyncio.sleep(0)
    await broker.heartbeat("one", INFO, 60)
    assert await waiting == INFO


async def test_wait_ready_says_what_to_start() -> None:
    client = RewardClient(
        transport=httpx.ASGITransport(create_app(MemoryBroker(), ApiSettings(**SETTINGS)))
    )
    with pytest.raises(QueueFault, match="start one with `gradus worker rust`"):
        await client.wait_ready("rust", timeout_s=0)
