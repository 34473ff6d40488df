"""What `make demo` starts and that it leaves nothing behind. The training itself is tested
elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from trainer.demo import run as demo
from trainer.demo.run import DemoFailed, Services, set_aside

needs_tools = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in demo.NEEDED),
    reason=f"needs {', '.join(demo.NEEDED)}",
)


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def wait_gone(pids: list[int], timeout_s: float = 60.0) -> list[int]:
    give_up_at = time.monotonic() + timeout_s
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    return left


def descendants(pid: int) -> list[int]:
    children = [
        int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]
    return children + [found for child in children for found in descendants(child)]


def test_an_earlier_run_is_moved_to_the_next_free_name(tmp_path: Path) -> None:
    run = tmp_path / "demo"
    assert set_aside(run) is None
    for number in (1, 2):
        run.mkdir()
        assert set_aside(run) is None, "an empty folder is no run"
        (run / "report.html").write_text(str(number))
        assert set_aside(run) == tmp_path / f"demo.{number}"
    assert (tmp_path / "demo.1" / "report.html").read_text() == "1"
    assert (tmp_path / "demo.2" / "report.html").read_text() == "2"


def test_missing_programs_are_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demo.main(tmp_path / "demo") == demo.EXIT_FAILED
    said = capsys.readouterr().out
    assert "redis-server (apt-get install redis-server)" in said
    assert not (tmp_path / "demo").exists()


@needs_tools
def test_a_missing_vllm_is_named_with_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(tmp_path / "demo", vllm=tmp_path / "no" / "gradus") == demo.EXIT_FAILED
    assert "`make vllm` installs it" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "demo").exists()


def started_with(tmp_path: Path, services: Services, model: Path) -> str:
    """Starts, in place of vLLM, a program that only writes down what it was started with."""
    program = tmp_path / "gradus"
    program.write_text('#!/bin/sh\necho "$@"\nexec sleep 60\n')
    program.chmod(0o755)
    return services.start_vllm(program, model)


def test_a_vllm_server_starts_when_there_is_a_model_and_ends_with_the_rest(tmp_path: Path) -> None:
    model = tmp_path / "warm_start"
    with Services(tmp_path) as services:
        url = started_with(tmp_path, services, model)
        (server,) = services.running
        assert server.process.poll() is None
        assert server.log.read_text() == ""
        model.mkdir()
        give_up_at = time.monotonic() + 60
        while "vllm" not in server.log.read_text():
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
        assert (
            f"vllm {model} --port {url.rpartition(':')[2]} --device cpu" in server.log.read_text()
        )
    assert wait_gone([server.process.pid]) == []


def test_a_vllm_server_that_still_waits_for_its_model_never_starts(tmp_path: Path) -> None:
    model = tmp_path / "warm_start"
    with Services(tmp_path) as services:
        started_with(tmp_path, services, model)
        (server,) = services.running
    assert wait_gone([server.process.pid]) == []
    assert server.log.read_text() == ""


@needs_tools
def test_what_dies_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Services(tmp_path) as services:
        services._launch(
            "worker-1",
            [sys.executable, "-c", "print('no box [here]'); raise SystemExit(3)"],
        )
        with pytest.raises(
            DemoFailed, match=r"(?s)worker-1 ended with status 3\. `gradus doctor`.*no box \[here\]"
        ):
            services._wait("the workers", 10, lambda: False)


@needs_tools
def test_what_does_not_get_ready_in_time_is_a_failure(tmp_path: Path) -> None:
    with Services(tmp_path) as services:
        services._launch("serve", ["sleep", "60"])
        with pytest.raises(DemoFailed, match="the service did not get ready within 0 s"):
            services._wait("the service", 0.0, lambda: False)
        pid = services.running[0].process.pid
    assert not is_alive(pid)


class RunningDemo:
    """`python -m trainer.demo.run` on one CPU, and so with one worker, when it says that it
    grades."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder / "demo" / "logs"
        self.temporary = folder / "temporary"
        self.temporary.mkdir(parents=True)
        command = [
            sys.executable,
            "-m",
            "trainer.demo.run",
            "--quick",
            "--run-dir",
            str(folder / "demo"),
        ]
        cpu = min(os.sched_getaffinity(0))
        with (folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "TMPDIR": str(self.temporary)},
                preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
            )
        give_up_at = time.monotonic() + 150
        while (
            found := re.search(r"Grading at (http://\S+);", said := (folder / "output").read_text())
        ) is None:
            assert self.process.poll() is None, said
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        self.url = found[1]
        self.started = descendants(self.process.pid)


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@needs_tools
@needs_proc
def test_everything_is_up_when_it_says_so_and_nothing_survives_the_demo(tmp_path: Path) -> None:
    ended = RunningDemo(tmp_path)
    (grader,) = httpx.get(f"{ended.url}/v1/graders").json()["graders"]
    assert (grader["name"], grader["workers"]) == ("ocaml", 1)
    assert [path.name.startswith("gradus-demo-") for path in ended.temporary.iterdir()] == [True]
    ended.process.terminate()
    assert ended.process.wait(60) == 128 + signal.SIGINT
    assert [*ended.temporary.iterdir()] == []
    assert {path.name for path in ended.logs.iterdir()} == {
        "redis.log",
        "serve.log",
        "worker-1.log",
    }
    assert wait_gone(ended.started) == []


@pytest.mark.slow
@needs_tools
@needs_proc
def test_nothing_survives_a_demo_that_was_killed(tmp_path: Path) -> None:
    killed = RunningDemo(tmp_path)
    assert len(killed.started) >= 3
    killed.process.kill()
    assert killed.process.wait(60) == -signal.SIGKILL
    assert wait_gone(killed.started) == []
