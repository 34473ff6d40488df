"""An OpenEnv environment per grader: `GenericEnvClient(base_url="http://HOST:8000/openenv/GRADER",
headers={...})`.

`reset` takes `task` (and `prompt`), or `split` and `index` into the service's files of tasks, or
`seed` in place of `index`. `step` takes `completion`. A fault is an error frame, which is an
exception in the client; the session stays open.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from gradus.contract import Faulted, Graded
from gradus.errors import Fault, Misuse
from gradus.feedback import reply
from gradus.integrations.core import Completion
from services.api.adapters.grading import count_texts, dispatch_completions
from services.api.adapters.task_files import TaskFiles
from services.api.authenticate import authenticate, check_host
from services.api.body_process import Body
from services.api.json_object import JsonObject, parse_object, parse_value
from services.api.parse import Reservation, parse_counted, run_outside_loop
from services.api.problems import Refused
from services.api.state import get_api
from services.broker import QueueFull

DEADLINE_S = 55.0
MAX_SESSIONS = 256
"""Sessions that one API key may have open at a process."""
MAX_ID_CHARS = 1000
ERROR_CODES = {400: "INVALID_JSON", 429: "CAPACITY_REACHED"}
"""Codes of OpenEnv's error frames, by the status of a refusal."""
_open_sessions: Counter[str] = Counter()  # by the name of the API key
router = APIRouter(include_in_schema=False)


class _Frame(NamedTuple):
    kind: Any
    data: JsonObject


def _parse_frame(data: bytes) -> _Frame:
    """Return a client's frame. Raises a Misuse: 400, 413, 422."""
    message = parse_object(data)
    inner = message.find_object("data")
    if inner is None and message.get("data"):
        raise Refused(400, "`data` of a frame is an object")
    return _Frame(message.get("type"), inner or JsonObject({}))


class _Reset(NamedTuple):
    """What a client asks a new episode to begin with."""

    episode_id: str
    task: bytes | None
    """As JSON."""
    prompt: str
    split: Any
    task_number: int | None
    seed: int


def _parse_reset(data: JsonObject) -> _Reset:
    """Return what the data of a frame ask for. Raises a Misuse: 400, 413, 422."""
    episode_id = data.get("episode_id") or uuid.uuid4().hex
    if not isinstance(episode_id, str) or len(episode_id) > MAX_ID_CHARS:
        raise Misuse(f"episode_id: must be a text of at most {MAX_ID_CHARS} characters")
    task = data.members.get("task", b"null")
    if task.strip() != b"null":
        return _Reset(episode_id, task, str(data.get("prompt") or ""), None, None, 0)
    index = _get_index(data, "index")
    seed = _get_index(data, "seed") or 0
    return _Reset(episode_id, None, "", data.get("split"), index, seed)


def _get_index(data: JsonObject, name: str) -> int | None:
    value = data.get(name)
    if value is not None and not isinstance(value, int):
        raise Misuse(f"{name}: must be an integer")
    return value


class _Session:
    def __init__(self, socket: WebSocket, grader: str) -> None:
        self._socket = socket
        self._grader = grader
        self._task: bytes | dict[str, Any] | None = None
        """As JSON, if it came in a frame."""
        self._prompt = ""
        self._reservation: Reservation | None = None
        """Bytes of the frame that brought the task."""
        self._state: dict[str, Any] = {"episode_id": None, "step_count": 0}

    async def handle(self, frame: _Frame, reservation: Reservation) -> dict[str, Any]:
        """Return the frame that answers one of the client's. `reservation`: of that frame's bytes.

        Raises Misuse, QueueFull, Fault.
        """
        kind, data = frame
        if kind == "reset":
            reset = await run_outside_loop(reservation, _parse_reset, data)
            observation = self._reset(reset)
            self._reservation = reservation
            return observation
        if kind == "step":
            return await self._step(data, reservation)
        if kind == "state":
            return {"type": "state", "data": self._state}
        raise Misuse("type: must be reset, step, state or close")

    def _reset(self, reset: _Reset) -> dict[str, Any]:
        if reset.task is not None:
            self._task = reset.task
            self._prompt = reset.prompt
            shown = {}
        else:
            files: TaskFiles = self._socket.app.state.tasks
            splits = files.splits.get(self._grader, {})
            split = reset.split or next(iter(splits), None)
            if not isinstance(split, str) or split not in splits:
                raise Misuse(
                    f"split: there is no such split of tasks of {self._grader}; there are:"
                    f" {', '.join(splits) or 'none'}"
                )
            tasks = splits[split]
            index = reset.task_number
            if index is None:
                index = reset.seed % len(tasks)
            if not 0 <= index < len(tasks):
                raise Misuse(f"index: the split {split} has the tasks 0 to {len(tasks) - 1}")
            task_id, self._prompt, self._task = tasks[index]
            shown = {"id": task_id, "split": split, "index": index}
        self._state = {"episode_id": reset.episode_id, "step_count": 0}
        return _build_observation(shown | {"prompt": self._prompt}, None, done=False)

    async def _step(self, data: JsonObject, reservation: Reservation) -> dict[str, Any]:
        if self._task is None:
            raise Misuse("reset the environment before the first step")
        api = get_api(self._socket)
        if self._reservation is not None:
            reservation.grow(self._reservation.n_bytes)  # the job has a copy of the task
        iter_completions = partial(_iter_completion, data, self._task, self._prompt)
        batch = await dispatch_completions(
            self._socket, self._grader, iter_completions, DEADLINE_S, reservation
        )
        results: list[Graded | Faulted] = []
        try:
            await api.dispatcher.settle_or_fail(batch, results.append)
        finally:
            await api.dispatcher.cancel(batch)
        [result] = results
        self._state["step_count"] += 1
        if isinstance(result, Faulted):
            raise Fault(result.fault.message)
        shown = {
            "stage": result.stage.value,
            "passed": result.passed,
            "components": dict(result.components),
            "feedback": reply(result),
        }
        return _build_observation(shown, result.reward, done=result.passed)


def _iter_completion(
    data: JsonObject, task: bytes | dict[str, Any], prompt: str
) -> Iterator[Completion]:
    if isinstance(task, bytes):
        task = parse_value(task)
    yield Completion(task, data.require_text("completion"), prompt)


def _build_observation(
    shown: dict[str, Any], reward: float | None, *, done: bool
) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": shown, "reward": reward, "done": done}}


def _build_error(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code}}


@router.websocket("/openenv/{grader}/ws")
async def serve_session(socket: WebSocket, grader: str) -> None:
    """Frames in turn until the client closes. A wrong key or host is refused before the connection
    is accepted."""
    try:
        check_host(socket)
        await authenticate(socket)
    except Refused:
        await socket.close(1008)
        return
    await socket.accept()
    key = socket.state.key.name
    with ExitStack() as stack:
        try:
            if _open_sessions[key] >= MAX_SESSIONS:
                message = f"this API key has {MAX_SESSIONS} open sessions at this process"
                raise Refused(429, message)
            stack.enter_context(get_api(socket).busy_connections.hold(socket.state.key))
        except Refused as refusal:
            await socket.send_json(_build_error("CAPACITY_REACHED", str(refusal)))
            await socket.close(1013)
            return
        await _run_session(socket, grader, key)


async def _run_session(socket: WebSocket, grader: str, key: str) -> None:
    _open_sessions[key] += 1
    try:
        episode = _Session(socket, grader)
        while True:
            text = await _handle_next_frame(socket, episode)
            if text is None:
                return
            await socket.send_text(text)
    except WebSocketDisconnect:
        return
    finally:
        _open_sessions[key] -= 1


async def _handle_next_frame(socket: WebSocket, episode: _Session) -> str | None:
    """Return the answer to the client's next frame; None when it closes the session."""
    reservation = Reservation(get_api(socket).in_flight, socket.state.key.name)
    try:
        frame = await _read_frame(socket, reservation)
        if frame is None:
            return None
        answer = await episode.handle(frame, reservation)
    except Misuse as misuse:
        status = misuse.answer_status if isinstance(misuse, Refused) else misuse.status
        answer = _build_error(ERROR_CODES.get(status, "VALIDATION_ERROR"), str(misuse))
    except (QueueFull, Fault) as failure:
        answer = _build_error("EXECUTION_ERROR", str(failure))
    # ASCII: what an answer repeats of the client's may hold half a surrogate pair
    return await run_outside_loop(reservation, json.dumps, answer)


async def _read_frame(socket: WebSocket, reservation: Reservation) -> _Frame | None:
    await asyncio.sleep(0)  # frames that are there already are handled in a turn of the loop each
    received = await socket.receive()
    if received["type"] == "websocket.disconnect":
        return None
    data = (received.get("text") or "").encode(errors="surrogatepass")
    reservation.grow(len(data))
    frame = await parse_counted(Body(data), reservation, _parse_frame)
    count_texts(frame.data, reservation)
    if frame.kind == "close":
        await socket.close()
        return None
    return frame
