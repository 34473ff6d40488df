"""The files that one OCaml completion passes, traced while it is graded over HTTP and Redis, are
named in docs/architecture.md."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, SimpleNamespace

from gradus.tasks.ocaml import OcamlTask
from services.api.server import serve
from services.broker.from_url import open_broker
from services.graders.ocaml.grader import OcamlGrader
from services.worker import Worker
from trainer.config.run import PromptConfig, RewardConfig
from trainer.data.tasks import Example
from trainer.rewards.judges import Judges, create_client

ROOT = Path(__file__).parents[2]
CHAPTER = "## The way of one completion\n"
TASK = OcamlTask(tests="let () = assert (double 2 = 4)", signature="val double : int -> int")


def find_documented() -> set[str]:
    """Return the files that the chapter names; `{a,b}.py` stands for two of them."""
    text = (ROOT / "docs/architecture.md").read_text()
    chapter = text.partition(CHAPTER)[2].partition("\n## ")[0]
    files = set()
    for start, names, end in re.findall(r"`([\w/]+/)\{?([\w,]+)\}?(\.\w+)`", chapter):
        files |= {start + name + end for name in names.split(",")}
    return files


@contextmanager
def executed(code: set[CodeType]) -> Iterator[None]:
    """Collects the code objects of all functions that are called, in threads that start inside the
    block too."""

    def note(frame: object, event: str, _: object) -> None:
        if event == "call":
            code.add(frame.f_code)  # type: ignore[attr-defined]

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def graded(grader: OcamlGrader, redis_url: str) -> set[str]:
    """Return files of ours with a function that is called while one completion is graded, by
    services that run already."""
    stop = asyncio.Event()
    ready = asyncio.get_running_loop().create_future()
    code: set[CodeType] = set()
    brokers = [open_broker(redis_url), open_broker(redis_url)]
    with executed(code):
        worker = Worker(grader, brokers[0], slots=1, self_tested=True)
        running = [
            asyncio.create_task(worker.run(stop)),
            asyncio.create_task(
                serve(brokers[1], "127.0.0.1", 0, stop=stop, on_ready=ready.set_result)
            ),
        ]
        config = RewardConfig(grader="ocaml", urls=[await ready])
        judges = Judges(config, {"double": Example("double", "Double it.", TASK)}, PromptConfig())
        rewards_of = judges.make_task_judge(create_client(config)).compute_rewards
        for answer in ("2 * x", "x + x"):
            code.clear()  # the first makes connections and the slot's boxes
            rewards = await rewards_of(
                prompts=["Double it."],
                completions=[f"```ocaml\nlet double x = {answer}\n```"],
                prompt_id=["double"],
                trainer_state=SimpleNamespace(global_step=0),
                log_metric=lambda *_: None,
            )
            assert rewards == [1.0]
        passed = {Path(one.co_filename) for one in code.copy()}
    stop.set()
    await asyncio.gather(*running)
    for broker in brokers:
        await broker.close()
    here = {str(path.relative_to(ROOT)) for path in passed if path.is_relative_to(ROOT)}
    return {path for path in here if path.startswith(("gradus/", "services/", "trainer/"))}


def test_the_files_that_a_completion_passes_are_documented(
    ocaml_grader: OcamlGrader, redis_url: str
) -> None:
    documented = find_documented()
    assert [path for path in documented if not (ROOT / path).is_file()] == []
    assert asyncio.run(graded(ocaml_grader, redis_url)) - documented == set()
    assert {Path(path).suffix for path in documented} == {".py", ".lua", ".ml", ".c", ".rs"}
