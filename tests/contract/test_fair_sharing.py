"""The headers `Gradus-Run` and `Gradus-Priority`, from the request to the queue
(`test_broker.py`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from services.api.app import create_app
from services.api.parse import parse_fair_share
from services.api.settings import ApiSettings
from services.broker import DEFAULT_FAIR_SHARE, Broker, FairShare, Priority
from services.broker.jobs import JobPayload
from services.broker.memory import MemoryBroker
from tests.fake_grader import INFO, submission


@asynccontextmanager
async def service() -> AsyncIterator[tuple[httpx.AsyncClient, Broker]]:
    """A worker is announced; what it would claim is left to the test."""
    broker = MemoryBroker()
    await broker.heartbeat("w", INFO, 60)
    app = create_app(broker, ApiSettings())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test"
    ) as client:
        yield client, broker
    await app.state.api.jobs.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Gradus-Run": ""},
        {"Gradus-Run": "a b"},
        {"Gradus-Run": "x" * 65},
        {"Gradus-Priority": "high"},
    ],
)
async def test_a_header_that_names_no_run_or_priority_is_misuse(headers: dict[str, str]) -> None:
    async with service() as (client, broker):
        for route in ("/v1/grade/ocaml", "/v1/grade/ocaml/stream", "/v1/jobs/ocaml"):
            answer = await client.post(
                route, json={"submissions": [submission("a")]}, headers=headers
            )
            assert (answer.status_code, answer.headers["content-type"]) == (
                422,
                "application/problem+json",
            )
            assert f"header `{next(iter(headers))}`" in answer.json()["detail"]
        assert await broker.depth("ocaml") == 0


async def test_the_headers_decide_whose_turn_it_is() -> None:
    async with service() as (client, broker):
        for run, priority, n_jobs in (
            ("big", "training", 5),
            ("small", "training", 2),
            ("nightly", "evaluation", 1),
        ):
            asked = {"submissions": [submission(f"{run}{n}", f"{run} {n}") for n in range(n_jobs)]}
            await client.post(
                "/v1/jobs/ocaml",
                json=asked,
                headers={"Gradus-Run": run, "Gradus-Priority": priority},
            )
        claims = await broker.claim("ocaml", "w", 8, 1)
    order = "".join(
        JobPayload.model_validate_json(claim.job.payload).submission.id[0] for claim in claims
    )
    assert order[0] == "n"
    assert sorted(order[1:5]) == list("bbss")
    assert order[5:] == "bbb"


def test_the_runs_of_two_keys_are_different() -> None:
    asked: tuple[dict[str, str], ...] = ({}, {"gradus-run": "r"})
    fair_shares = [
        parse_fair_share(headers, key) for key in ("default", "ann", "bob") for headers in asked
    ]
    assert len(set(fair_shares)) == 6
    assert fair_shares[0] == DEFAULT_FAIR_SHARE
    assert parse_fair_share({"gradus-priority": "evaluation"}, "ann") == FairShare(
        "ann", Priority.EVALUATION
    )
