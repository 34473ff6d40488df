"""`gradus pipeline run` with small programs for stages: what is done again and what not, kills,
signals, misuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from tests.conftest import Cli
from tests.e2e.test_demo_run import descendants, is_alive, wait_gone
from trainer.pipeline.plan import load_pipeline
from trainer.pipeline.state import PipelineFolder
from trainer.runs.signals import DUPLICATE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")

COUNTS = "import sys, pathlib; pathlib.Path(sys.argv[1]).open('a').write('x'); print('counted')"
"""Adds one letter to a file: how often a stage ran."""


class Toy:
    """A pipeline of three stages that count how often they ran: `b` reads what `a` leaves, `c`
    reads a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "out"
        self.file = folder / "toy.yaml"
        self.input = folder / "input.txt"
        self.counts = folder
        self.input.write_text("one")
        self.tree: dict[str, Any] = {
            "name": "toy",
            "folder": str(self.folder),
            "stages": {
                "a": self.stage("a", leaves={"text": "a.txt"}),
                "b": self.stage("b", inputs=["{a.text}"]),
                "c": self.stage("c", inputs=[str(self.input)]),
            },
        }

    def stage(self, name: str, **more: Any) -> dict[str, Any]:
        count = str(self.counts / name)
        script = f"{COUNTS}; p = pathlib.Path(sys.argv[2]); p.write_text(p.name)"
        return {
            "kind": "command",
            "run": ["{python}", "-c", script, count, "{folder}/" + f"{name}.txt"],
            **more,
        }

    def write(self) -> Path:
        self.file.write_text(json.dumps(self.tree))
        return self.file

    def runs(self) -> str:
        """How often a, b and c ran."""
        return "".join(
            str(len((self.counts / name).read_text())) if (self.counts / name).exists() else "0"
            for name in "abc"
        )

    def state(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.folder / "pipeline.json").read_text())["stages"]
        return value


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def started(file: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gradus", "pipeline", "run", str(file), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    give_up_at = time.monotonic() + 120
    while not file.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up_at, f"{file} does not appear"
        time.sleep(0.05)


# ---------------------------------------------------------------------- what is done, and again


def test_every_stage_runs_once_in_its_order_and_not_again(gradus: Cli, toy: Toy) -> None:
    assert gradus("pipeline", "run", toy.write()).status == 0
    assert toy.runs() == "111"
    assert [entry["status"] for entry in toy.state().values()] == ["done"] * 3
    assert "counted" in (toy.folder / "logs" / "a.log").read_text()
    again = gradus("pipeline", "run", toy.file)
    assert (again.status, toy.runs()) == (0, "111")
    assert again.err.count("done before") == 3


def test_a_stage_whose_settings_changed_runs_anew_with_all_after_it(gradus: Cli, toy: Toy) -> None:
    gradus("pipeline", "run", toy.write())
    toy.tree["stages"]["b"]["inputs"].append(str(toy.input))
    assert gradus("pipeline", "run", toy.write()).status == 0
    assert toy.runs() == "122"
    assert (toy.folder / "earlier" / "b-1" / "b.txt").read_text() == "b.txt"


def test_a_stage_whose_input_changed_runs_anew(gradus: Cli, toy: Toy) -> None:
    gradus("pipeline", "run", toy.write())
    toy.input.write_text("two")
    assert gradus("pipeline", "run", toy.file).status == 0
    assert toy.runs() == "112"


def test_an_input_that_was_only_touched_is_no_change(gradus: Cli, toy: Toy) -> None:
    gradus("pipeline", "run", toy.write())
    os.utime(toy.input, ns=(1, 1))
    assert gradus("pipeline", "run", toy.file).status == 0
    assert toy.runs() == "111"


def test_what_an_earlier_stage_left_counts_as_input(gradus: Cli, toy: Toy) -> None:
    gradus("pipeline", "run", toy.write())
    (toy.folder / "a" / "a.txt").write_text("by hand")
    assert gradus("pipeline", "run", toy.file).status == 0
    assert toy.runs() == "122"


def test_a_stage_whose_output_is_gone_runs_anew(gradus: Cli, toy: Toy) -> None:
    gradus("pipeline", "run", toy.write())
    (toy.folder / "a" / "a.txt").unlink()
    assert gradus("pipeline", "run", toy.file).status == 0
    assert toy.runs() == "222"


def test_from_runs_a_stage_and_all_after_it_anew(gradus: Cli, toy: Toy) -> None:
    gradus("pipeline", "run", toy.write())
    assert gradus("pipeline", "run", toy.file, "--from", "b").status == 0
    assert toy.runs() == "122"
    unknown = gradus("pipeline", "run", toy.file, "--from", "bb")
    assert unknown.status == 2
    assert "--from bb: there is no such stage; did you mean b?" in unknown.err


def test_a_dry_run_says_what_would_be_done_and_does_nothing(gradus: Cli, toy: Toy) -> None:
    said = gradus("pipeline", "run", toy.write(), "--dry-run")
    assert (said.status, toy.runs(), toy.folder.exists()) == (0, "000", False)
    assert said.err.count("runs\n") == 3


def test_set_changes_a_setting_of_one_run(gradus: Cli, toy: Toy, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert gradus("pipeline", "run", toy.write(), "--set", f"folder={other}").status == 0
    assert (other / "a" / "a.txt").exists()
    assert not toy.folder.exists()


def test_a_stage_that_fails_ends_the_pipeline_and_is_tried_again(gradus: Cli, toy: Toy) -> None:
    toy.tree["stages"]["b"]["run"] = ["sh", "-c", f"echo why not; test -e {toy.counts}/allowed"]
    failed = gradus("pipeline", "run", toy.write())
    assert failed.status == 4
    assert "b ended with status 1" in failed.err
    assert "why not" in failed.err
    assert toy.runs() == "100"
    (toy.counts / "allowed").touch()
    assert gradus("pipeline", "run", toy.file).status == 0
    assert toy.runs() == "101"


def test_a_stage_that_leaves_out_what_it_declares_has_failed(gradus: Cli, toy: Toy) -> None:
    toy.tree["stages"]["b"]["leaves"] = {"report": "report.html"}
    failed = gradus("pipeline", "run", toy.write())
    assert failed.status == 4
    assert "b ended without leaving its report" in failed.err


def test_a_program_that_is_not_there_ends_the_pipeline_by_name(gradus: Cli, toy: Toy) -> None:
    toy.tree["stages"]["b"]["run"] = ["no-such-program-anywhere"]
    failed = gradus("pipeline", "run", toy.write())
    assert failed.status == 2
    assert "stages.b: no-such-program-anywhere: cannot be started" in failed.err
    assert "Traceback" not in failed.err


def test_a_gate_that_refuses_ends_the_pipeline_with_status_1(gradus: Cli, toy: Toy) -> None:
    toy.tree["stages"]["a"]["leaves"] = {"figures": "a.json"}
    toy.tree["stages"]["a"]["run"] = [
        "sh",
        "-c",
        'echo \'{"rate": {"value": 0.5, "low": 0.4, "high": 0.6}}\' > {folder}/a.json',
    ]
    gate = {"name": "rate", "of": "{a.figures}", "metric": "rate", "at_least": 0.45}
    toy.tree["stages"]["b"] = {"kind": "gate", "gates": [gate]}
    refused = gradus("pipeline", "run", toy.write())
    assert (refused.status, toy.runs()) == (1, "000")
    assert "lower end 0.4" in refused.err
    assert toy.state()["b"]["status"] == "failed"
    record = json.loads((toy.folder / "b" / "promotion.json").read_text())
    assert record["promoted"] is False
    assert record["lineage"]["stages"]["a"]["settings"]["kind"] == "command"
    gate["at_least"] = 0.4
    assert gradus("pipeline", "run", toy.write()).status == 0
    assert toy.runs() == "001"


# ---------------------------------------------------------------------- kills and signals


IGNORED = ":"
"""A trap that does nothing."""


def slow(toy: Toy, script: str, trap: str = "") -> Path:
    """The toy with a stage b that handles SIGTERM by `trap` from its begin on, which it tells by a
    file, and then does what the script says."""
    begun = toy.counts / "begun"
    traps = f"trap '{trap}' TERM; " if trap else ""
    toy.tree["stages"]["b"]["run"] = ["sh", "-c", f"{traps}touch {begun}; {script}"]
    toy.write()
    return begun


def test_a_pipeline_that_was_killed_goes_on_with_the_stage_that_was_not_finished(
    gradus: Cli, toy: Toy
) -> None:
    begun = slow(toy, f"test -e {toy.counts}/second || exec sleep 600")
    process = started(toy.file)
    wait_for(begun, process)
    left = descendants(process.pid)
    process.kill()
    process.communicate()
    assert toy.state()["b"]["status"] == "running"
    assert wait_gone(left) == [], "what a killed pipeline had started ends too"
    (toy.counts / "second").touch()
    assert gradus("pipeline", "run", toy.file).status == 0
    assert toy.runs() == "101"


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_lets_the_stage_save_and_ends_the_pipeline(
    gradus: Cli, toy: Toy, number: signal.Signals
) -> None:
    saved = toy.counts / "saved"
    begun = slow(toy, "while true; do sleep 0.1; done", f"touch {saved}; exit 143")
    process = started(toy.file)
    wait_for(begun, process)
    left = descendants(process.pid)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, saved.exists()) == (128 + number, True), said
    assert f"stopped by {number.name}" in said
    assert wait_gone(left) == []
    assert toy.state()["b"]["status"] == "running"


@pytest.mark.slow
def test_a_second_signal_kills_a_stage_that_does_not_end(toy: Toy) -> None:
    begun = slow(toy, "while true; do sleep 0.1; done", IGNORED)
    process = started(toy.file)
    wait_for(begun, process)
    left = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert any("Once more kills it" in line for line in process.stdout)
    assert process.poll() is None
    time.sleep(2 * DUPLICATE_S)  # one that follows at once counts as the first
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert wait_gone(left) == []


def test_two_runs_never_meet_in_one_folder(toy: Toy) -> None:
    begun = slow(toy, f"while test ! -e {toy.counts}/enough; do sleep 0.1; done")
    process = started(toy.file)
    wait_for(begun, process)
    folder = PipelineFolder(toy.folder)
    told: list[str] = []
    with (
        pytest.raises(Misuse, match="another run"),
        folder.acquire_lock(told.append, leftover_s=0.5),
    ):
        pass
    assert told == ["waiting for another run in this folder, or what one has started, to end"]
    (toy.counts / "enough").touch()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_run_waits_for_what_a_killed_one_had_started(toy: Toy) -> None:
    begun = slow(toy, f"while test ! -e {toy.counts}/enough; do sleep 0.1; done", IGNORED)
    process = started(toy.file)
    wait_for(begun, process)
    process.kill()
    process.communicate()
    folder = PipelineFolder(toy.folder)
    told: list[str] = []
    with (
        pytest.raises(Misuse, match="another run"),
        folder.acquire_lock(told.append, leftover_s=0.5),
    ):
        pass
    (toy.counts / "enough").touch()
    with folder.acquire_lock(told.append, leftover_s=60):
        pass
    assert not is_alive(process.pid)


def test_a_damaged_state_is_named_and_not_guessed_at(gradus: Cli, toy: Toy) -> None:
    gradus("pipeline", "run", toy.write())
    for text in ("", "{", "[]", '{"name": "toy", "stages": {"a": {"status": "good"}}}'):
        (toy.folder / "pipeline.json").write_text(text)
        ended = gradus("pipeline", "run", toy.file)
        assert ended.status == 2
        assert "pipeline.json: is no state that this version can read" in ended.err


# ------------------------------------------------------------------------------------------ misuse

STAGE = {"kind": "command", "run": ["true"]}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"stage": {}}, "stage: Extra inputs are not permitted"),
    "an unknown key of a stage": (
        {"stages": {"a": STAGE | {"ran": 1}}},
        "stages.a.command.ran: Extra inputs are not permitted",
    ),
    "an unknown kind": (
        {"stages": {"a": {"kind": "ppo"}}},
        "does not match any of the expected tags: 'train', 'eval', 'gate', 'command'",
    ),
    "no kind": ({"stages": {"a": {}}}, "Unable to extract tag using discriminator 'kind'"),
    "no stages": ({"stages": {}}, "stages: Dictionary should have at least 1 item"),
    "a name that is a path": ({"stages": {"../a": STAGE}}, "is no name for a stage"),
    "a name that is ours": ({"stages": {"logs": STAGE}}, "is no name for a stage"),
    "a service that is none": (
        {"service": "redis://x"},
        "write embedded, or the service's address",
    ),
    "an output that no stage leaves": (
        {"stages": {"a": STAGE, "b": STAGE | {"inputs": ["{a.model}"]}}},
        "stages.b: {a.model}: a leaves no model; it leaves folder",
    ),
    "a stage that comes later": (
        {"stages": {"b": STAGE | {"inputs": ["{a.folder}"]}, "a": STAGE}},
        "stages.b: {a.folder}: there is no earlier stage a",
    ),
    "a stage that is not there": (
        {"stages": {"first": STAGE, "b": STAGE | {"inputs": ["{frist.folder}"]}}},
        "there is no earlier stage frist; did you mean first?",
    ),
    "an output outside of the folder": (
        {"stages": {"a": STAGE | {"leaves": {"x": "../../x"}}}},
        "is not in the stage's folder",
    ),
    "a training's folder": (
        {"stages": {"a": {"kind": "train", "config": "x.yaml", "set": {"output_dir": "/"}}}},
        "output_dir is the pipeline's to say",
    ),
    "an evaluation's folder": (
        {"stages": {"a": {"kind": "eval", "model": "m", "tasks": "t", "options": ["--out=/"]}}},
        "stages.a.eval.options: --out=/: is the pipeline's to say",
    ),
    "a config that is not there": (
        {"stages": {"a": {"kind": "train", "config": "no/such.yaml"}}},
        "stages.a: there is no no/such.yaml",
    ),
    "tasks that are not there": (
        {"stages": {"a": {"kind": "eval", "model": "m", "tasks": "no_such.jsonl"}}},
        "stages.a: there is no no_such.jsonl",
    ),
    "two gates of one name": (
        {
            "stages": {
                "a": {
                    "kind": "gate",
                    "gates": [{"name": "g", "of": "x", "metric": "y", "at_least": 0}] * 2,
                }
            }
        },
        "two gates are called 'g'",
    ),
}


@pytest.mark.parametrize(("changes", "said"), BAD.values(), ids=BAD)
def test_a_pipeline_that_makes_no_sense_is_refused_before_anything_runs(
    gradus: Cli, toy: Toy, changes: dict[str, Any], said: str
) -> None:
    toy.tree |= changes
    ended = gradus("pipeline", "run", toy.write())
    assert ended.status == 2
    assert said in " ".join(ended.err.split())
    assert "toy.yaml" in ended.err
    assert not toy.folder.exists()


RAW = {
    "a key given twice": (b"name: a\nname: b\n", "is given twice"),
    "a list": (b"[]", "holds list where a mapping"),
    "nothing": (b"", "holds nothing"),
    "no YAML": (b"name: [", "toy.yaml:"),
    "no UTF-8": (b"name: \xff", "cannot be read"),
    "no finite number": (b"name: a\nfolder: .inf", "is not a finite number"),
    "an object of Python's": (
        b"name: !!python/object/apply:os.system [id]",
        "could not determine a constructor",
    ),
}


@pytest.mark.parametrize(("content", "said"), RAW.values(), ids=RAW)
def test_a_file_that_is_no_pipeline_is_refused(
    gradus: Cli, toy: Toy, content: bytes, said: str
) -> None:
    toy.file.write_bytes(content)
    ended = gradus("pipeline", "run", toy.file)
    assert ended.status == 2
    assert said in ended.err
    assert "toy.yaml" in ended.err


BAD_SETS = {
    "folder": "write a.b=value",
    "=x": "write a.b=value",
    "stages..x=1": "write a.b=value",
    "name.x=1": "name is no section",
    "stages.a.ran=1": "stages.a.command.ran: Extra inputs are not permitted",
    "folder=.nan": "is not a finite number",
}


@pytest.mark.parametrize(("override", "said"), BAD_SETS.items())
def test_an_override_that_makes_no_sense_is_refused(
    gradus: Cli, toy: Toy, override: str, said: str
) -> None:
    ended = gradus("pipeline", "run", toy.write(), "--set", override)
    assert ended.status == 2
    assert said in ended.err


def test_settings_of_a_training_are_overridden_by_their_dotted_names(
    toy: Toy, tmp_path: Path
) -> None:
    config = tmp_path / "train.yaml"
    config.write_text("stage: sft\n")
    settings = {"grpo.max_steps": 5, "model.name": "x"}
    toy.tree["stages"] = {"a": {"kind": "train", "config": str(config), "set": settings}}
    pipeline = load_pipeline(
        toy.write(), ["stages.a.set.grpo.max_steps=7", "stages.a.set.lora=null"]
    )
    (found,) = pipeline.stages.values()
    assert found.model_dump()["set"] == {"grpo.max_steps": 7, "model.name": "x", "lora": None}


def test_an_unknown_option_of_a_stage_is_told_before_the_first_runs(gradus: Cli, toy: Toy) -> None:
    toy.tree["stages"]["c"] = {
        "kind": "eval",
        "model": "m",
        "tasks": "demo:ocaml",
        "options": ["--sampels=3"],
    }
    ended = gradus("pipeline", "run", toy.write())
    assert (ended.status, toy.runs()) == (2, "000")
    assert "stages.c: gradus eval: No such option: --sampels" in ended.err


@pytest.mark.slow
def test_mistakes_in_a_training_s_settings_are_told_before_the_first_runs(
    gradus: Cli, toy: Toy, tmp_path: Path
) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        "stage: sft\nmodel: {name: 'fresh:qwen3'}\ndata: {dataset: demo:ocaml/warm-start}\n"
        "sft: {learning_rat: 1}\noutput_dir: x\n"
    )
    toy.tree["stages"]["c"] = {"kind": "train", "config": str(config)}
    ended = gradus("pipeline", "run", toy.write())
    assert (ended.status, toy.runs()) == (2, "000")
    assert "stages.c: " in ended.err
    assert "learning_rat" in ended.err
