"""What `gradus worker --metrics-port` tells Prometheus: after real work of a real worker, asked
over HTTP."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest

from gradus.contract import Graded, Stage, Submission, compute_job_id
from gradus.descriptions import GraderDescription, GraderInfo
from gradus.errors import Misuse, SandboxFault
from services.broker import Job
from services.broker.jobs import JobPayload
from services.broker.memory import MemoryBroker
from services.worker import Worker
from services.worker_metrics import WorkerMetrics
from tests.fake_grader import INFO, submission
from tests.graders import described

RUBRIC = INFO.rubrics[0]


class Grader:
    """`right`, `wrong` or `fault`, as the completion says."""

    waiting_slots = None

    def description(self) -> GraderDescription:
        return described(self.info())

    def info(self) -> GraderInfo:
        return INFO

    def self_test(self) -> None: ...

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        if submission.completion == "fault":
            raise SandboxFault("the box broke", retryable=False)
        return verdict(submission.id, passed=submission.completion == "right")


def verdict(submission_id: str, *, passed: bool) -> Graded:
    return Graded(
        id=submission_id,
        reward=1.0 if passed else 0.25,
        passed=passed,
        stage=Stage.TESTS,
        components={"tests": 1.0},
        rubric=RUBRIC,
        grader=INFO.grader,
        toolchain="t",
        cpu_ms=500.0,
        wall_ms=1.0,
    )


def job(completion: str, payload: str | None = None) -> Job:
    sent = submission(completion, completion)
    made = JobPayload.model_validate(
        {"submission": sent, "rubric": RUBRIC, "deadline": 4e9, "grader": INFO.grader}
    )
    job_id = compute_job_id(INFO.grader, RUBRIC, made.submission)
    return Job(job_id, "ocaml", payload or made.model_dump_json())


def told(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }


async def test_a_scrape_tells_what_became_of_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "services.worker.CLAIM_WAIT_S", 0.1
    )  # a worker that stops waits for its claim to run out
    broker = MemoryBroker()
    metrics = WorkerMetrics()
    stop = asyncio.Event()
    port = metrics.serve(0)
    assert told(port)['gradus_worker_jobs_total{outcome="faulted"}'] == 0
    jobs = [job("right"), job("wrong"), job("fault"), job("unreadable", "[]")]
    await broker.submit(jobs)
    [claim] = await broker.claim("ocaml", "leaving", 1, 0)
    await broker.release(claim)
    running = asyncio.create_task(Worker(Grader(), broker, slots=2, metrics=metrics).run(stop))
    job_ids = [one.id for one in jobs]
    assert len([one async for one in broker.wait(job_ids, 20)]) == 4
    stop.set()
    await running
    seen = await asyncio.to_thread(told, port)
    expected = {
        'jobs_total{outcome="passed"}': 1,
        'jobs_total{outcome="failed"}': 1,
        'jobs_total{outcome="faulted"}': 2,
        'jobs_total{outcome="dropped"}': 0,
        "redeliveries_total": 1,
        "dead_letters_total": 1,
        'grade_seconds_count{stage="tests"}': 2,
        'grade_seconds_count{stage="fault"}': 2,
    }
    assert {name: seen.get(f"gradus_worker_{name}") for name in expected} == expected


def test_a_port_that_is_taken_is_misuse() -> None:
    port = WorkerMetrics().serve(0)
    with pytest.raises(Misuse, match=str(port)):
        WorkerMetrics().serve(port)
