"""CPU of one API process per submission, in microseconds, where every verdict is there already.

That is the way of a request without broker and worker: parsing, validation, job ids, payloads,
results. One JSON line; run it in two checkouts in turn (`python -m tests.bench.api`) and compare.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from gradus.contract import Graded, Stage
from gradus.descriptions import GraderInfo
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker

ROUNDS = 12
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "ocaml": (
        "ocaml",
        {"tests": "let () = assert (double 2 = 4)\n" * 60, "signature": "val double : int -> int"},
    ),
    "rust tests": (
        "rust",
        {"tests": "#[test]\nfn doubles() { assert_eq!(solution::double(2), 4); }\n" * 30},
    ),
    "rust cases": ("rust", {"cases": [{"stdin": "1 2 3", "stdout": "4"}] * 20}),
    "story": (
        "story",
        {
            "references": ["As a user, I want to log in, so that I can"] * 15,
            "sprint_goal": "x" * 100,
        },
    ),
}
VERDICT = Graded(
    id="x",
    reward=1,
    passed=True,
    stage=Stage.TESTS,
    components={"tests": 1.0},
    rubric="bench/graduated@1",
    grader="bench@1",
    toolchain="none",
    cpu_ms=1,
    wall_ms=1,
).model_dump_json()


class Answered(MemoryBroker):
    """A broker that has a verdict for every job."""

    async def submit(self, jobs: Any, fair_share: Any = None) -> dict[str, str]:
        return {job.id: VERDICT for job in jobs}

    async def results(self, job_ids: Any) -> dict[str, str]:
        return {}


async def post(app: Any, path: str, body: bytes) -> None:
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    answered: list[Any] = []

    async def receive() -> Any:
        return messages.pop() if messages else await asyncio.Future()

    async def send(message: Any) -> None:
        answered.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": headers,
        "state": {},
    }
    await app(scope | {"root_path": "", "http_version": "1.1", "scheme": "http"}, receive, send)
    assert answered[0]["status"] == 200, answered


async def main() -> None:
    found: dict[str, float] = {}
    for name, (grader, task) in TASKS.items():
        broker = Answered()
        rubrics = (f"{grader}/graduated@1",)
        info = GraderInfo(
            name=grader, revision="r1", toolchain="none", rubrics=rubrics, sandbox="none"
        )
        await broker.heartbeat("bench", info, 600)
        app = create_app(broker, ApiSettings())
        for number in (1, 64, 512):
            one = {"prompt": "write " * 50, "completion": "let f x = x\n" * 150, "task": task}
            sent = [
                one | {"id": f"s{n}", "completion": f"{one['completion']}{n}"}
                for n in range(number)
            ]
            body = json.dumps({"submissions": sent}).encode()
            times = []
            for _ in range(ROUNDS):
                began = time.process_time()
                for _ in range(max(1, 256 // number)):
                    await post(app, f"/v1/grade/{grader}", body)
                times.append((time.process_time() - began) / max(1, 256 // number) / number)
            found[f"{name} x{number}"] = round(min(times) * 1e6, 1)
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
