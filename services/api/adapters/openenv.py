"""An OpenEnv environment per grader: `GenericEnvClient(base_url="http://HOST:8000/openenv/GRADER",
headers={...})`.

`reset` takes `task` (and `prompt`), or `split` and `index` into the service's files of tasks, or
`seed` in place of `index`. `step` takes `completion`. A fault is an error frame, which is an
exception in the client; the session stays open.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import Any

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from gradus.contract import Faulted, Graded
from gradus.errors import Fault, Misuse
from gradus.feedback import reply
from gradus.integrations.core import Completion
from services.api.adapters.grading import dispatch_completions
from services.api.adapters.task_files import TaskFiles
from services.api.authenticate import authenticate, check_host
from services.api.parse import Reservation, parse_counted, parse_object
from services.api.problems import Refused
from services.api.state import get_api
from services.broker import QueueFull

DEADLINE_S = 55.0
MAX_SESSIONS = 256
"""Sessions that one API key may have open at a process."""
ERROR_CODES = {400: "INVALID_JSON", 429: "CAPACITY_REACHED"}
"""Codes of OpenEnv's error frames, by the status of a refusal."""
_open_sessions: Counter[str] = Counter()  # by the name of the API key
router = APIRouter(include_in_schema=False)


def _get_index(data: dict[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is not None and not isinstance(value, int):
        raise Misuse(f"{name}: must be an integer")
    return value


def _reserve(socket: WebSocket) -> Reservation:
    return Reservation(get_api(socket).in_flight, socket.state.key.name)


class _Session:
    def __init__(self, socket: WebSocket, grader: str) -> None:
        self._socket = socket
        self._grader = grader
        self._task: Any = None
        self._prompt = ""
        self._reservation = _reserve(socket)  # of the frame with the task
        self._state: dict[str, Any] = {"episode_id": None, "step_count": 0}

    async def handle(
        self, kind: Any, data: dict[str, Any], reservation: Reservation
    ) -> dict[str, Any]:
        """Return the frame that answers one of the client's. `reservation`: of that frame's bytes.

        Raises Misuse, QueueFull, Fault.
        """
        if kind == "reset":
            observation = self._reset(data)
            self._reservation = reservation
            return observation
        if kind == "step":
            return await self._step(data, reservation)
        if kind == "state":
            return {"type": "state", "data": self._state}
        raise Misuse("type: must be reset, step, state or close")

    def _reset(self, data: dict[str, Any]) -> dict[str, Any]:
        if data.get("task") is not None:
            self._task = data["task"]
            self._prompt = str(data.get("prompt") or "")
            shown = {}
        else:
            files: TaskFiles = self._socket.app.state.tasks
            splits = files.splits.get(self._grader, {})
            split = data.get("split") or next(iter(splits), None)
            if not isinstance(split, str) or split not in splits:
                raise Misuse(
                    f"split: there is no such split of tasks of {self._grader}; there are:"
                    f" {', '.join(splits) or 'none'}"
                )
            tasks = splits[split]
            index = _get_index(data, "index")
            seed = _get_index(data, "seed") or 0
            if index is None:
                index = seed % len(tasks)
            if not 0 <= index < len(tasks):
                raise Misuse(f"index: the split {split} has the tasks 0 to {len(tasks) - 1}")
            task_id, self._prompt, self._task = tasks[index]
            shown = {"id": task_id, "split": split, "index": index}
        self._state = {"episode_id": data.get("episode_id") or uuid.uuid4().hex, "step_count": 0}
        return _build_observation(shown | {"prompt": self._prompt}, None, done=False)

    async def _step(self, data: dict[str, Any], reservation: Reservation) -> dict[str, Any]:
        if self._task is None:
            raise Misuse("reset the environment before the first step")
        if not isinstance(data.get("completion"), str):
            raise Misuse("an action has `completion`, a text")
        api = get_api(self._socket)
        completion = Completion(self._task, data["completion"], self._prompt)
        batch = await dispatch_completions(
            self._socket, self._grader, [completion], DEADLINE_S, reservation
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
    if _open_sessions[key] >= MAX_SESSIONS:
        message = f"this API key has {MAX_SESSIONS} open sessions at this process"
        await _send(socket, _build_error("CAPACITY_REACHED", message))
        await socket.close(1013)
        return
    _open_sessions[key] += 1
    try:
        episode = _Session(socket, grader)
        while True:
            frame = await _handle_next_frame(socket, episode)
            if frame is None:
                return
            await _send(socket, frame)
    except WebSocketDisconnect:
        return
    finally:
        _open_sessions[key] -= 1


async def _send(socket: WebSocket, frame: dict[str, Any]) -> None:
    """Send a frame in ASCII: what it repeats of the client's may hold half a surrogate pair."""
    await socket.send_text(json.dumps(frame))


async def _handle_next_frame(socket: WebSocket, episode: _Session) -> dict[str, Any] | None:
    """Return the answer to the client's next frame; None when it closes the session."""
    received = await socket.receive()
    if received["type"] == "websocket.disconnect":
        return None
    reservation = _reserve(socket)
    try:
        data = (received.get("text") or "").encode(errors="surrogatepass")
        reservation.grow(len(data))
        message = await parse_counted(data, reservation, parse_object)
        if not isinstance(message.get("data") or {}, dict):
            return _build_error("INVALID_JSON", "`data` of a frame is an object")
        if message.get("type") == "close":
            await socket.close()
            return None
        return await episode.handle(message.get("type"), message.get("data") or {}, reservation)
    except Misuse as misuse:
        status = misuse.answer_status if isinstance(misuse, Refused) else misuse.status
        return _build_error(ERROR_CODES.get(status, "VALIDATION_ERROR"), str(misuse))
    except (QueueFull, Fault) as failure:
        return _build_error("EXECUTION_ERROR", str(failure))
