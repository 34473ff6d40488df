"""Work on large bodies, in a process of its own: the event loop does not wait for that
interpreter's lock, and a body that takes too long or too much memory costs that process only.

`python -m services.api.body_process FD` serves the connection at a file descriptor until it ends.
"""

from __future__ import annotations

import asyncio
import atexit
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from gradus.errors import GradusError, QueueFault, TooLarge

CPU_S = 20
"""Seconds of CPU after which work on one body is stopped: 64 MiB take about one."""
SPARE_BYTES = 512 * 1024 * 1024
MEMORY_FACTOR = 8
"""Work on a body may take so many times its size, and `SPARE_BYTES`, of address space."""
TOO_COSTLY = f"reading the body takes more than {CPU_S} s or too much memory; send it in parts"
ENDED_BY_BODY = (-signal.SIGXCPU, -signal.SIGABRT, -signal.SIGSEGV)
"""Exit codes of a process that used up its CPU time, memory or stack."""
ENDED = "the process that reads large bodies was ended; try again, or give the API more memory"
BLOCK_BYTES = 256 * 1024
Answer = tuple[Exception | None, Any]
T = TypeVar("T")


class Body:
    """The bytes of a request as they arrive. In blocks, because a copy of a whole body stalls the
    event loop."""

    def __init__(self, data: bytes = b"") -> None:
        self.blocks: list[bytes | bytearray] = [data, bytearray()]
        self.n_bytes = len(data)

    def append(self, chunk: bytes) -> None:
        if len(self.blocks[-1]) >= BLOCK_BYTES:
            self.blocks.append(bytearray())
        self.blocks[-1] += chunk
        self.n_bytes += len(chunk)

    def join(self) -> bytes:
        return b"".join(self.blocks)


class Request(NamedTuple):
    work: Callable[..., Any]
    args: tuple[Any, ...]
    n_bytes: int
    """Size of what is worked on, from which the bound of memory is computed."""
    n_blocks: int = 0
    """Blocks of a body that follow. Joined, they are the first argument."""


class BodyProcess:
    """A process that works on one body at a time: started with the first, and again after a body
    that ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._exit_code = 0

    def call(self, request: Request, blocks: Sequence[bytes | bytearray]) -> Any:
        """Return the result of a request, or raise what its work raises.

        A process that ends before its answer is tried once more. Raises TooLarge where both end as
        at their limits, and else QueueFault: somebody ended them, such as the kernel for memory.
        """
        answer = self._exchange(request, blocks) or self._exchange(request, blocks)
        if answer is None and self._exit_code in ENDED_BY_BODY:
            raise TooLarge(TOO_COSTLY)
        if answer is None:
            raise QueueFault(ENDED)
        error, value = answer
        if error is not None:
            raise error
        return value

    def _exchange(self, request: Request, blocks: Sequence[bytes | bytearray]) -> Answer | None:
        """Return the answer to a request; None where the process ends before it."""
        if self._connection is None:
            self._connection = self._start()
        try:
            self._connection.send(request)
            for block in blocks:
                self._connection.send_bytes(block)
            answer: Answer = self._connection.recv()
        except (EOFError, OSError):
            self.stop()
            return None
        return answer

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        with theirs:
            descriptor = theirs.fileno()
            # In a session of its own: Ctrl-C ends the service, and with it this process.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(descriptor)],
                pass_fds=[descriptor],
                start_new_session=True,
            )
        return ours

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._exit_code = self._process.wait()
            self._process = None


_PROCESS = BodyProcess()
atexit.register(_PROCESS.stop)
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="bodies")
_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
"""By API key: each has one body at a time in the process, so a key that sends many waits for
itself."""


async def run_in_process(
    key: str, n_bytes: int, work: Callable[..., T], *args: Any, body: Body | None = None
) -> T:
    """Return `work(*args)`, or `work(data, *args)` with the bytes of a body, computed in the
    process. What `work` changes of `args` is lost, and all three are pickled.

    `key`: name of the API key whose body it is. `n_bytes`: its size. Raises what `work` raises,
    TooLarge at the limits of the process, and QueueFault where it was ended.
    """
    blocks = [] if body is None else body.blocks
    request = Request(work, args, n_bytes, len(blocks))
    loop = asyncio.get_running_loop()
    async with _locks.setdefault(key, asyncio.Lock()):
        result: T = await loop.run_in_executor(_THREAD, _PROCESS.call, request, blocks)
    return result


def serve(connection: Connection) -> None:
    """Answer requests of `BodyProcess.call` until the connection ends."""
    while True:
        try:
            work, args, n_bytes, n_blocks = connection.recv()
            _limit_resources(n_bytes)
            if n_blocks:
                blocks = [connection.recv_bytes() for _ in range(n_blocks)]
                args = (b"".join(blocks), *args)
                del blocks
            connection.send((None, work(*args)))
        except EOFError:
            return
        except GradusError as error:
            connection.send((error, None))
        except MemoryError:
            connection.send((TooLarge(TOO_COSTLY), None))
        except Exception:  # noqa: BLE001  (a defect: the service logs it; this process serves others)
            connection.send((RuntimeError(traceback.format_exc()), None))


def _limit_resources(n_bytes: int) -> None:
    """Allow this process `CPU_S` more, and the address space for a body of `n_bytes`."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    n_pages = int(Path("/proc/self/statm").read_text().split()[0])
    address_space = n_pages * resource.getpagesize() + SPARE_BYTES + MEMORY_FACTOR * n_bytes
    _lower(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + CPU_S)
    _lower(resource.RLIMIT_AS, address_space)


def _lower(limit: int, value: int) -> None:
    """Set a limit of this process, which stays below that of the service."""
    hard = resource.getrlimit(limit)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, hard))


if __name__ == "__main__":
    # Where memory runs out, the kernel ends this process and not the service.
    with suppress(OSError):  # some containers do not let it
        Path("/proc/self/oom_score_adj").write_text("1000")
    serve(Connection(int(sys.argv[1])))
