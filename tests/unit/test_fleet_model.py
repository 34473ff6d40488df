"""The model of a fleet loses no job, takes turns and has the queue's limits. Time is simulated."""

from __future__ import annotations

from dataclasses import replace

import simpy

from tests.bench.fleet_model import FINISH_S, SUBMIT_S, TAKE_S, Fleet, Model, Partition, Request

SMALL = Fleet(workers=40, partitions=2, trainers=4, step=128, think_s=5.0, job_s=1.0, seconds=100)


def test_every_job_of_lost_workers_is_graded_once() -> None:
    model = Model(replace(SMALL, trainers=0, burst=2_000, lost_per_h=300.0, boot_s=1.0))
    model.run()
    assert model.tally.n_lost_starts > 0
    assert model.tally.n_graded == model.tally.n_submitted == 2_000


def test_runs_take_turns_whatever_their_backlogs() -> None:
    env = simpy.Environment()
    partition = Partition(env, 1)
    for run, size in (("long", 4), ("short", 2)):
        request = Request(env, run, size)
        partition.queue(request, size)
    taken = []
    while (job := partition.take()) is not None:
        taken.append(job.run)
    assert taken == ["long", "short", "long", "short", "long", "long"]
    assert partition.depth == 0


def test_a_burst_of_one_tenant_waits_for_itself() -> None:
    calm = Model(SMALL).run()
    loaded = Model(replace(SMALL, burst=100_000)).run()
    assert calm["refused"] == 0 < loaded["refused"]
    assert loaded["deepest_queue"] <= 40_000
    assert loaded["step_p50_s"] < 3 * calm["step_p50_s"]


def test_the_core_of_one_redis_bounds_short_jobs() -> None:
    fleet = replace(SMALL, partitions=1, workers=100, job_s=0.001, trainers=40, think_s=0.1)
    found = Model(replace(fleet, seconds=3.0, slow_share=0.0)).run()
    bound = 1 / (SUBMIT_S + TAKE_S + FINISH_S)
    assert 0.7 * bound < found["jobs_per_s"] <= bound
    assert found["busiest_redis"] > 0.95
