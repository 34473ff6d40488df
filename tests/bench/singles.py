"""What 100 single calls of each trainer's own code cost beside one batch of them: seconds and CPU
seconds.

`python -m tests.bench.singles`, after `make test-integrations` has installed the trainers. The
graders are the real ones. The service's CPU is that of the API, the workers and their boxes. Both
ways take turns in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integrations.test_peers import ADAPTERS, FAULTS, NEMO_GYM_PORT, ROOT, TASKS, python_of


@contextmanager
def service(graders: str) -> Iterator[tuple[str, int]]:
    """The URL and process id of a service in one process."""
    command = [sys.executable, "-m", "gradus", "serve", "--port", "0", "--graders", graders]
    command += ["--adapters", ADAPTERS, "--tasks", f"ocaml={TASKS}"]
    command += ["--nemo-gym-port", f"{graders}={NEMO_GYM_PORT}"]
    # verifiers' NeMo Gym client loads certificates between connecting and sending, 100 times in one
    # thread
    environment = {**os.environ, "GRADUS_API_HEADER_TIMEOUT_S": "120"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"serving on (\S+)", line):
                    threading.Thread(
                        target=process.stderr.read, daemon=True
                    ).start()  # a full pipe would stop it
                    yield found[1], process.pid
                    return
            raise RuntimeError("".join(lines[-5:]))
        finally:
            process.terminate()


def measure(client: tuple[str, ...], n: int) -> dict[str, list[list[float]]]:
    with service("rust" if client == ("sandbox_fusion",) else "ocaml") as (url, pid):
        more = {
            "GRADUS_URL": url,
            "SERVICE_PID": str(pid),
            "SINGLES": str(n),
            "GRADUS_GRADER": "ocaml",
        }
        more |= {"NEMO_GYM_PORT": str(NEMO_GYM_PORT), "FAULTY_NEMO_GYM_PORT": "0"}
        done = subprocess.run(
            [
                python_of(client[0]),
                ROOT / "tests" / "integrations" / "peers" / f"{client[0]}_peer.py",
                *client[1:],
            ],
            env={**os.environ, **more, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    results = [
        line.removeprefix("RESULT ")
        for line in done.stdout.splitlines()
        if line.startswith("RESULT ")
    ]
    if not results:
        raise RuntimeError(done.stderr[-1000:])
    found: dict[str, list[list[float]]] = json.loads(results[-1])
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--number", type=int, default=100)
    arguments.add_argument(
        "clients", nargs="*", help="such as verl or openrlhf-route; default: all"
    )
    asked = arguments.parse_args()
    clients = [tuple(name.split("-")) for name in asked.clients] or list(FAULTS)
    print(
        f"{'client':22}  batch s  singles s  ratio | CPU s: client  service  singles: client "
        " service  ratio"
    )
    for client in clients:
        found = {}
        for way, rounds in measure(client, asked.number).items():
            found[way] = [statistics.median(column) for column in zip(*rounds, strict=True)]
        batch_s, *batch = found["batch"]
        singles_s, *singles = found["singles"]
        print(
            f"{'-'.join(client):22} {batch_s:8.2f} {singles_s:10.2f} {singles_s / batch_s:6.2f}"
            f" |{batch[0]:14.2f} {batch[1]:8.2f} {singles[0]:16.2f} {singles[1]:8.2f}"
            f" {sum(singles) / sum(batch):6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
