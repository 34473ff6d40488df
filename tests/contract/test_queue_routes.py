"""The routes of operators over a real Redis, with a key that has the right and keys that have
not."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gradus.contract import RawSubmission
from services.api.api_keys import create_key
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker import Job
from services.broker.jobs import JobPayload
from services.broker.streams import StreamsBroker
from tests.fake_grader import HIDDEN, INFO, SETTINGS, submission

SECRETS = {
    name: create_key(name, ["ocaml"] if name == "limited" else [])
    for name in ("operator", "limited", "trainer")
}
KEYS = ";".join(
    key.line() + " role=operator" * (name != "trainer") for name, (_, key) in SECRETS.items()
)
ROUTES = [
    ("GET", "", None),
    ("PUT", "/ocaml", {"state": "paused"}),
    ("GET", "/ocaml/jobs", None),
    ("POST", "/ocaml/cancel", {"jobs": ["ocaml:a"]}),
    ("GET", "/ocaml/dead-letters", None),
    ("DELETE", "/ocaml/dead-letters", None),
    ("GET", "/ocaml/dead-letters/ocaml:a", None),
    ("POST", "/ocaml/dead-letters/ocaml:a/requeue", None),
]


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[name][0]}"}


@asynccontextmanager
async def service(
    url: str, **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, StreamsBroker]]:
    broker = StreamsBroker(url, prefix=f"test-{uuid.uuid4().hex}:")
    app = create_app(broker, ApiSettings(**(SETTINGS | settings)))
    await broker.heartbeat("w", INFO, 600)
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test", headers=key("operator")
    )
    async with client:
        yield client, broker
    await app.state.api.jobs.close()
    await broker.close()


async def bury(broker: StreamsBroker, name: str, payload: str = "") -> None:
    made = RawSubmission.model_validate(submission(name))
    queued = JobPayload(
        submission=made, rubric="ocaml/graduated@1", deadline=time.time(), grader=INFO.grader
    )
    await broker.submit([Job(f"ocaml:{name}", "ocaml", payload or queued.model_dump_json())])
    [claim] = await broker.claim("ocaml", "w", 1, 5)
    await broker.finish(claim, "{}", cache=False, dead_letter=True)


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
async def test_only_keys_with_the_right_may_operate(
    redis_url: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    async with service(redis_url, keys=KEYS) as (client, broker):
        await bury(broker, "a")
        for headers, status in (({"authorization": ""}, 401), (key("trainer"), 403)):
            refused = await client.request(method, f"/v1/queues{path}", json=body, headers=headers)
            assert (refused.status_code, HIDDEN in refused.text) == (status, False)
        if path:
            other = await client.request(
                method,
                f"/v1/queues{path.replace('ocaml', 'rust', 1)}",
                json=body,
                headers=key("limited"),
            )
            assert other.status_code == 403
        assert (await broker.get_queue_state("ocaml"), len(await broker.dead_letters("ocaml"))) == (
            "open",
            1,
        )
        assert (await client.request(method, f"/v1/queues{path}", json=body)).status_code == 200


async def test_a_service_without_keys_has_no_operator(redis_url: str) -> None:
    async with service(redis_url) as (client, _):
        assert (await client.get("/v1/queues")).status_code == 403


async def test_a_queue_is_shown_paused_and_opened(redis_url: str) -> None:
    async with service(redis_url, keys=KEYS) as (client, broker):
        assert (await client.put("/v1/queues/ocaml", json={"state": "paused"})).json() == {
            "state": "paused"
        }
        await client.post("/v1/jobs/ocaml", json={"submissions": [submission("a")]})
        assert await broker.claim("ocaml", "w", 1, 0) == []
        row = (await client.get("/v1/queues")).json()["queues"]["ocaml"]
        assert (row["state"], row["queued"], row["running"], row["workers"]) == ("paused", 1, 0, 1)
        [worker] = (await client.get("/v1/queues")).json()["workers"]
        assert (worker["is_dead"], worker["cause"], worker["grader"]) == (False, "", "ocaml")
        assert (await client.get("/v1/queues", headers=key("limited"))).json()["queues"].keys() == {
            "ocaml"
        }
        await client.put("/v1/queues/ocaml", json={"state": "open"})
        assert len(await broker.claim("ocaml", "w", 1, 5)) == 1
        assert (await client.put("/v1/queues/ocaml", json={"state": "shut"})).status_code == 422
        assert (await client.put("/v1/queues/nope", json={"state": "open"})).status_code == 404


async def test_jobs_are_listed_and_cancelled_by_id_and_by_run(redis_url: str) -> None:
    async with service(redis_url, keys=KEYS) as (client, broker):
        for run in "ab":
            sent = {"submissions": [submission(run, f"of {run}"), submission("c", "shared")]}
            headers = key("trainer") | {"Gradus-Run": run}
            location = (await client.post("/v1/jobs/ocaml", json=sent, headers=headers)).headers[
                "location"
            ]
        jobs = (await client.get("/v1/queues/ocaml/jobs")).json()["jobs"]
        assert sorted(job["runs"] for job in jobs) == [
            ["trainer a"],
            ["trainer a", "trainer b"],
            ["trainer b"],
        ]
        assert {(job["state"], job["starts"]) for job in jobs} == {("queued", 0)}
        cancel = "/v1/queues/ocaml/cancel"
        assert (await client.post(cancel, json={"run": "trainer b"})).json() == {"cancelled": 1}
        [shared] = [job["id"] for job in jobs if len(job["runs"]) == 2]
        assert (await client.post(cancel, json={"jobs": [shared]})).json() == {"cancelled": 1}
        async with asyncio.timeout(20):
            while (status := (await client.get(location)).json())["status"] != "done":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert [one["fault"]["message"] for one in status["results"]] == [
            "cancelled by an operator"
        ] * 2
        assert await broker.depth("ocaml") == 1
        for wrong in ({}, {"jobs": ["x"], "run": "y"}, {"job": "x"}):
            assert (await client.post(cancel, json=wrong)).status_code == 422


async def test_dead_letters_are_listed_shown_queued_again_and_purged(redis_url: str) -> None:
    async with service(redis_url, keys=KEYS) as (client, broker):
        await bury(broker, "a")
        await bury(broker, "b", "no payload")
        letters = "/v1/queues/ocaml/dead-letters"
        assert [one["job"] for one in (await client.get(letters)).json()["dead_letters"]] == [
            "ocaml:a",
            "ocaml:b",
        ]
        shown = (await client.get(f"{letters}/ocaml:a")).json()
        assert shown["payload"]["submission"]["task"]["tests"] == HIDDEN
        assert (await client.get(f"{letters}/ocaml:b")).json()["payload"] == "no payload"
        assert (await client.get(f"{letters}/ocaml:c")).status_code == 404
        assert (await client.post(f"{letters}/ocaml:a/requeue")).json() == {"requeued": 1}
        assert (await client.post(f"{letters}/ocaml:b/requeue")).status_code == 422
        [claim] = await broker.claim("ocaml", "w", 1, 5)
        assert claim.job.id == "ocaml:a"
        assert (await client.delete(letters)).json() == {"deleted": 1}
        assert await broker.dead_letters("ocaml") == []
