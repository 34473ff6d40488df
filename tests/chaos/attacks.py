"""Attacks of one tenant with an ordinary API key, one function each, and a process that repeats
some.

`python -m tests.chaos.attacks NAME --url URL` reads the key from `ATTACKER_KEY`, prints the name
after each round, and ends when its standard input does: its last line counts what it was answered.
It is of low priority, since attackers have machines of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cache
from urllib.parse import urlsplit

import httpx
from wsproto.events import TextMessage
from wsproto.utilities import LocalProtocolError

from tests.websocket_client import WebSocketClient

GRADE = "/v1/grade/ocaml"
RUNS = 40
SESSIONS = 12
FRAMES = (1_700_000, 6_000_000)
"""Bytes of the frames of a session: one within the bounds, one beyond."""
SLOW_BODIES = 5
SLOW_BYTES = 60_000_000
HOLD_S = 5.0
"""Seconds for which slow bodies and sessions are held."""
JOB_REQUESTS = 62
TOGETHER = 4
"""Requests of one kind that are sent at the same time."""
TASK = {"tests": "let () = assert true"}


class Attacker:
    """Client of one API key, which counts what it is answered."""

    def __init__(self, url: str, key: str, jobs_of_run: int, n_stories: int) -> None:
        """`jobs_of_run`: those that each of `RUNS` runs queues at once."""
        self.jobs_of_run = jobs_of_run
        self.n_stories = n_stories
        self.answers: Counter[str] = Counter()
        self.address = urlsplit(url)
        self.authorization = f"Bearer {key}"
        headers = {"Authorization": self.authorization, "Content-Type": "application/json"}
        self.http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=120, limits=httpx.Limits(), trust_env=False
        )

    async def post(self, path: str, body: bytes, run: str | None = None) -> None:
        headers = {"Gradus-Run": run} if run else {}
        try:
            response = await self.http.post(path, content=body, headers=headers)
        except httpx.TransportError as error:
            self.answers[type(error).__name__] += 1
        else:
            self.answers[str(response.status_code)] += 1

    async def post_together(self, path: str, *bodies: bytes) -> None:
        """Send each body `TOGETHER` times at once."""
        for body in bodies:
            await asyncio.gather(*(self.post(path, body) for _ in range(TOGETHER)))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.address.hostname, self.address.port)


def write_lists(n_bytes: int) -> str:
    return "[" + "[]," * (n_bytes // 3) + "1]"


def build_request(completion: str, task: str) -> bytes:
    submission = f'{{"id": "a", "completion": "{completion}", "task": {task}}}'
    return f'{{"submissions": [{submission}]}}'.encode()


@cache
def build_dense_bodies() -> list[bytes]:
    """The largest bodies of lists, and some within the bound of tokens."""
    bodies = []
    for n_bytes in (60_000_000, 30_000_000, 1_700_000):
        lists = write_lists(n_bytes)
        bodies += [
            build_request("x", f'{{"tests": {lists}}}'),
            f'{{"submissions": {lists}}}'.encode(),
        ]
    return bodies


async def send_dense_bodies(attacker: Attacker) -> None:
    await attacker.post_together(GRADE, *build_dense_bodies())


@cache
def build_dense_labels() -> list[bytes]:
    bodies = []
    for n_bytes in (30_000_000, 1_700_000):
        bodies.append(f'{{"response": "x", "label": {{"tests": {write_lists(n_bytes)}}}}}'.encode())
    return bodies


async def send_dense_labels(attacker: Attacker) -> None:
    await attacker.post_together("/slime/ocaml", *build_dense_labels())


@cache
def build_duplicate_keys(n_keys: int) -> bytes:
    keys = ",".join(f'"k{n}":1' for n in range(n_keys))
    return f'{{{keys},"k{n_keys - 1}":1}}'.encode()


async def send_duplicate_keys(attacker: Attacker) -> None:
    await attacker.post_together("/slime/ocaml", build_duplicate_keys(40_000))
    await attacker.post_together(GRADE, build_duplicate_keys(400_000))


@cache
def build_end_tokens() -> bytes:
    text = "p sleep 1 number 0 of 0" + "</s>" * 1_000_000
    query = {"query": [text], "prompts": ["p"], "labels": [TASK]}
    return json.dumps(query).encode()


async def send_end_tokens(attacker: Attacker) -> None:
    await attacker.post_together("/openrlhf/ocaml/get_reward", build_end_tokens())


@cache
def build_frame(n_bytes: int) -> str:
    return f'{{"type": "reset", "data": {{"task": {{"tests": {write_lists(n_bytes)}}}}}}}'


async def hold_session(attacker: Attacker) -> None:
    """Open a session, send frames of 1.7 and 6 MB, and hold it."""
    reader, writer = await attacker.connect()
    session = WebSocketClient(reader, writer)
    try:
        event = await session.open("/openenv/ocaml/ws", attacker.authorization)
        attacker.answers[type(event).__name__] += 1
        for n_bytes in FRAMES:
            await session.send(TextMessage(build_frame(n_bytes)))
            event = await session.receive()
            frame = json.loads(event.data) if isinstance(event, TextMessage) else {}
            attacker.answers[frame.get("data", {}).get("code", type(event).__name__)] += 1
        await asyncio.sleep(HOLD_S)
    except (OSError, LocalProtocolError) as error:
        attacker.answers[type(error).__name__] += 1
    finally:
        writer.transport.abort()


async def hold_sessions(attacker: Attacker) -> None:
    await asyncio.gather(*(hold_session(attacker) for _ in range(SESSIONS)))


@cache
def build_cached_work() -> bytes:
    """2,000 submissions of eight contents."""
    submissions = []
    for number in range(2_000):
        completion = f"sleep 1 number {number % 8} of 0"
        submissions.append({"id": f"{number:0>200}", "completion": completion, "task": TASK})
    return json.dumps({"submissions": submissions, "deadline_s": 60}).encode()


async def start_jobs_of_cached_work(attacker: Attacker) -> None:
    await attacker.post(GRADE, build_cached_work())
    for _ in range(JOB_REQUESTS):
        await attacker.post("/v1/jobs/ocaml", build_cached_work())


async def name_many_runs(attacker: Attacker) -> None:
    posts = []
    for run in range(RUNS):
        submissions = []
        for number in range(attacker.jobs_of_run):
            completion = f"sleep 20 number {number} of {random.getrandbits(64)}"
            submissions.append({"id": str(number), "completion": completion, "task": TASK})
        body = json.dumps({"submissions": submissions, "deadline_s": 20}).encode()
        posts.append(attacker.post(GRADE, body, run=f"r{run}"))
    await asyncio.gather(*posts)


async def hold_slow_body(attacker: Attacker) -> None:
    """Send all of a body but its last byte."""
    reader, writer = await attacker.connect()
    head = (
        f"POST {GRADE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {attacker.authorization}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {SLOW_BYTES}\r\n\r\n"
    )
    writer.write(head.encode())
    piece = b" " * 1_000_000
    try:
        for _ in range(SLOW_BYTES // len(piece) - 1):
            writer.write(piece)
            await writer.drain()
        writer.write(piece[1:])
        async with asyncio.timeout(HOLD_S):
            answer = await reader.readline()
    except TimeoutError:
        attacker.answers["held"] += 1
    except ConnectionError as error:
        attacker.answers[type(error).__name__] += 1
    else:
        attacker.answers[answer.decode().partition(" ")[2][:3]] += 1
    writer.transport.abort()


async def hold_slow_bodies(attacker: Attacker) -> None:
    await asyncio.gather(*(hold_slow_body(attacker) for _ in range(SLOW_BODIES)))


def write_long_story(rng: random.Random) -> str:
    lines = []
    for _ in range(230):
        lines.append(
            f"As a {rng.choice(['user', 'admin', 'guest'])} {rng.random()}, I want to"
            f" {rng.choice(['export', 'share', 'delete', 'edit'])} the"
            f" {rng.choice(['report', 'invoice', 'file', 'page'])} {rng.random()} quickly and"
            f" safely, so that I can {rng.choice(['work', 'sleep', 'save money'])} {rng.random()}."
        )
    return "\n".join(lines)[:32_000]


async def send_long_stories(attacker: Attacker) -> None:
    rng = random.Random()
    references = []
    for number in range(40):
        references.append(
            f"As a user {number}, I want to export my report number {number} as PDF, so that I can"
            " share it."
        )
    submissions = []
    for number in range(attacker.n_stories):
        task = {"references": references}
        submissions.append({"id": str(number), "completion": write_long_story(rng), "task": task})
    body = json.dumps({"submissions": submissions, "deadline_s": 110}).encode()
    await attacker.post("/v1/grade/story", body)


Attack = Callable[[Attacker], Awaitable[None]]
ATTACKS: dict[str, Attack] = {
    "dense bodies": send_dense_bodies,
    "dense labels of an adapter": send_dense_labels,
    "duplicate keys": send_duplicate_keys,
    "end tokens": send_end_tokens,
    "OpenEnv frames": hold_sessions,
    "jobs over cached work": start_jobs_of_cached_work,
    "40 names of runs": name_many_runs,
    "five slow bodies": hold_slow_bodies,
    "long stories": send_long_stories,
}


async def repeat(attacker: Attacker, name: str) -> None:
    while True:
        await ATTACKS[name](attacker)
        print(name, flush=True)


async def attack_until_told(attacker: Attacker, names: list[str]) -> None:
    """Repeat these attacks, each beside the others, until standard input ends."""
    repeating = asyncio.gather(*(repeat(attacker, name) for name in names))
    reading = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait([repeating, reading], return_when=asyncio.FIRST_COMPLETED)
    repeating.cancel()
    results = await asyncio.gather(repeating, return_exceptions=True)
    if not isinstance(results[0], asyncio.CancelledError):
        raise results[0]
    await attacker.http.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=ATTACKS, metavar="NAME")
    parser.add_argument("--url", required=True)
    parser.add_argument("--jobs-of-run", type=int, required=True)
    parser.add_argument("--stories", type=int, required=True)
    arguments = parser.parse_args()
    os.nice(10)

    async def run() -> None:
        key = os.environ["ATTACKER_KEY"]
        attacker = Attacker(arguments.url, key, arguments.jobs_of_run, arguments.stories)
        await attack_until_told(attacker, arguments.names)
        print(json.dumps(attacker.answers))

    asyncio.run(run())


if __name__ == "__main__":
    main()
