"""A submission that is sent again: the same content is the same work, by whatever id and after any restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from gradus.contract import GraderInfo
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker import Broker
from services.broker.streams import StreamsBroker
from tests.echo import INFO, SETTINGS, EchoWorker, submission

SOON_S = 60.0


class Site:
    """One Redis, one worker, and API processes that come and go, as it were: nothing is shared but Redis."""

    def __init__(self, redis_url: str, prefix: str, stack: AsyncExitStack) -> None:
        self._url = redis_url
        self._prefix = prefix
        self._stack = stack

    def queue(self) -> Broker:
        broker = StreamsBroker(self._url, prefix=self._prefix)
        self._stack.push_async_callback(broker.close)
        return broker

    async def worker(self, info: GraderInfo = INFO) -> EchoWorker:
        return await self._stack.enter_async_context(EchoWorker(self.queue(), info).working())

    @asynccontextmanager
    async def api(self) -> AsyncIterator[httpx.AsyncClient]:
        broker = StreamsBroker(self._url, prefix=self._prefix)
        transport = httpx.ASGITransport(create_app(broker, ApiSettings(**SETTINGS)))
        async with httpx.AsyncClient(transport=transport, base_url="http://api", timeout=SOON_S) as client:
            yield client
        await broker.close()


@pytest.fixture
async def site(redis_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(redis_url, f"twice-{request.node.name}:", stack)


async def ask(client: httpx.AsyncClient, *submissions: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await client.post("/v1/grade/ocaml", json={"submissions": submissions})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def but_cached(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "cached"}


async def test_the_same_submission_sent_again_has_the_same_result_and_is_graded_once(site: Site) -> None:
    worker = await site.worker()
    async with site.api() as client:
        [first] = await ask(client, submission("a", "reward 0.25"))
        [second] = await ask(client, submission("a", "reward 0.25"))
    assert (first["cached"], second["cached"]) == (False, True)
    assert but_cached(first) == but_cached(second)
    assert worker.graded == {"reward 0.25": 1}


async def test_it_is_graded_once_though_the_api_was_started_anew_in_between(site: Site) -> None:
    worker = await site.worker()
    async with site.api() as before:
        [first] = await ask(before, submission("a", "reward 0.25"))
    async with site.api() as after:
        [second] = await ask(after, submission("a", "reward 0.25"))
    assert but_cached(first) == but_cached(second)
    assert worker.graded == {"reward 0.25": 1}


async def test_what_is_running_already_is_not_started_again_by_another_api(site: Site) -> None:
    worker = await site.worker()
    async with site.api() as one, site.api() as other:
        asking = [asyncio.create_task(ask(client, submission("a", "hold"))) for client in (one, other)]
        async with asyncio.timeout(SOON_S):
            await worker.holding.wait()
        await asyncio.sleep(0.2)
        worker.letting_go.set()
        [[first], [second]] = await asyncio.gather(*asking)
    assert but_cached(first) == but_cached(second)
    assert worker.graded == {"hold": 1}


async def test_whoever_asks_under_another_id_shares_the_result(site: Site) -> None:
    worker = await site.worker()
    async with site.api() as client:
        results = await ask(client, submission("a", "reward 0.25"), submission("b", "reward 0.25"))
    assert [result["id"] for result in results] == ["a", "b"]
    assert {result["reward"] for result in results} == {0.25}
    assert worker.graded == {"reward 0.25": 1}


async def test_the_same_id_with_another_content_is_another_submission(site: Site) -> None:
    """An id names a place in an answer, not the work: nobody is given the verdict on something else."""
    worker = await site.worker()
    async with site.api() as client:
        rewards = [
            (await ask(client, submission("a", completion)))[0]["reward"]
            for completion in ("reward 0.25", "reward 0.5", "reward 0.25")
        ]
        changed = submission("a", "reward 0.25", task={"tests": "let () = assert true"})
        assert [result["cached"] for result in await ask(client, changed)] == [False]
    assert rewards == [0.25, 0.5, 0.25]
    assert worker.graded == {"reward 0.25": 2, "reward 0.5": 1}


async def test_the_same_id_twice_in_one_request_is_refused(site: Site) -> None:
    worker = await site.worker()
    async with site.api() as client:
        sent = [submission("a", "reward 0.25"), submission("a", "reward 0.5")]
        answer = await client.post("/v1/grade/ocaml", json={"submissions": sent})
    assert answer.status_code == 422
    assert not worker.graded


async def test_another_revision_of_the_grader_grades_again(site: Site) -> None:
    worker = await site.worker()
    async with site.api() as client:
        await ask(client, submission("a", "reward 0.25"))
    await worker.broker.announce("echo", INFO, 0)
    newer = await site.worker(INFO.model_copy(update={"revision": "r2"}))
    async with site.api() as client:
        [result] = await ask(client, submission("a", "reward 0.25"))
    assert not result["cached"]
    assert worker.graded["reward 0.25"] + newer.graded["reward 0.25"] == 2
