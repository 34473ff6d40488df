"""Run folders: which there are, what state each is in, and what Prometheus is told of them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_server import append, metric, sample
from prometheus_client.parser import text_string_to_metric_families
from report_runs import hostile_run, rich_run, tiny_run
from sample_evaluations import rich_evaluation, stored

from gradus.contract import Stage
from gradus.folder_lock import is_abandoned, locked
from services.dashboard import runs as runs_module
from services.dashboard.evaluations import Evaluation, parse_step, read_evaluation
from services.dashboard.files import ConfinedDirectory
from services.dashboard.prometheus import METRICS, render_metrics
from services.dashboard.run import FollowedRun, State
from services.dashboard.runs import Runs
from services.dashboard.views import build_detail, build_group, build_summary

NOW = time.time()


def followed(folder: Path) -> Runs:
    runs = Runs(folder)
    asyncio.run(runs.read_changes())
    return runs


def look_again(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """With a new search for folders: what changed, and what is gone."""
    monkeypatch.setattr(runs_module, "SEARCH_EVERY_S", 0.0)
    before = {run.id for run in runs.list_runs()}
    changed = read_changes(runs)
    return changed, sorted(before - {run.id for run in runs.list_runs()})


def read_changes(runs: Runs) -> list[str]:
    """The runs that changed since the last look."""
    version = runs.version
    asyncio.run(runs.read_changes())
    return [run.id for run in runs.list_runs() if run.version > version]


def ids(folder: Path) -> list[str]:
    return [run.id for run in followed(folder).list_runs()]


def only(folder: Path) -> FollowedRun:
    [run] = followed(folder).list_runs()
    return run


# ----------------------------------------------------------------------------------------- folders


def test_runs_are_found_some_folders_deep(tmp_path: Path) -> None:
    for name in ("a", "b/c", "a/previous-1", "b/c/d/e", "a/checkpoint-4", ".hidden"):
        append(tmp_path / name / "metrics.jsonl", [metric(1)])
    (tmp_path / "empty").mkdir()
    append(tmp_path / "evaluated" / "eval" / "x.json", [{}])
    assert ids(tmp_path) == ["a", "b/c", "evaluated"]
    assert ids(tmp_path / "a" / "previous-1") == ["previous-1"]


def test_a_folder_that_is_a_run_itself_is_one(tmp_path: Path) -> None:
    append(tmp_path / "mine" / "metrics.jsonl", [metric(1)])
    assert ids(tmp_path / "mine") == ["mine"]


def test_a_folder_that_is_not_there_yet_holds_no_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = followed(tmp_path / "runs")
    assert runs.list_runs() == []
    append(tmp_path / "runs" / "new" / "metrics.jsonl", [metric(1)])
    assert look_again(runs, monkeypatch) == (["new"], [])


def test_a_run_that_is_deleted_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        append(tmp_path / name / "metrics.jsonl", [metric(1)])
    runs = followed(tmp_path)
    (tmp_path / "a" / "metrics.jsonl").unlink()
    (tmp_path / "a").rmdir()
    assert look_again(runs, monkeypatch) == ([], ["a"])


def test_folders_that_lead_out_or_in_circles_are_left_out(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    append(elsewhere / "metrics.jsonl", [metric(1)])
    append(tmp_path / "a" / "metrics.jsonl", [metric(1)])
    (tmp_path / "out").symlink_to(elsewhere)
    (tmp_path / "again").symlink_to("a")
    (tmp_path / "round").symlink_to(".")
    assert ids(tmp_path) == ["a"]


def test_too_many_runs_are_left_out_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "MAX_RUNS", 3)
    for n in range(5):
        append(tmp_path / str(n) / "metrics.jsonl", [metric(1)])
    runs = followed(tmp_path)
    assert [run.id for run in runs.list_runs()] == ["0", "1", "2"]
    assert runs.left_out


def test_a_name_that_is_no_text_can_be_asked_for(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff")
    append(Path(folder) / "metrics.jsonl", [metric(1)])
    runs = followed(tmp_path)
    assert [run.id for run in runs.list_runs()] == ["run-\ufffd"]
    assert b'run="run-\xef\xbf\xbd"' in render_metrics(runs.list_runs(), NOW)


def test_only_what_changed_is_told(tmp_path: Path) -> None:
    for name in "ab":
        append(tmp_path / name / "metrics.jsonl", [metric(1)])
    runs = followed(tmp_path)
    assert read_changes(runs) == []
    append(tmp_path / "b" / "metrics.jsonl", [metric(2)])
    assert read_changes(runs) == ["b"]


def test_a_run_that_stalls_is_told_though_its_folder_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "a" / "metrics.jsonl", [metric(1)])
    runs = followed(tmp_path)
    monkeypatch.setattr("services.dashboard.run.STALLED_AFTER_S", -1.0)
    assert read_changes(runs) == ["a"]
    assert read_changes(runs) == []


def test_a_long_run_does_not_keep_a_short_one_waiting(tmp_path: Path) -> None:
    append(
        tmp_path / "long" / "completions.jsonl",
        (sample(n, completion="x" * 1000) for n in range(3000)),
    )
    append(tmp_path / "short" / "metrics.jsonl", [metric(1)])
    runs = Runs(tmp_path)
    assert asyncio.run(runs.read_changes())
    assert [run.metrics.step for run in runs.list_runs()] == [None, 1]
    while asyncio.run(runs.read_changes()):
        pass
    assert [run.groups.completions for run in runs.list_runs()] == [3000, 0]


def test_a_resumed_run_shows_no_step_twice(tmp_path: Path) -> None:
    file = tmp_path / "a" / "metrics.jsonl"
    append(file, [metric(n, reward=0.1) for n in range(1, 9)])
    runs = followed(tmp_path)
    partial = file.with_suffix(".partial")
    append(partial, [metric(n, reward=0.1) for n in range(1, 5)])
    os.replace(partial, file)
    append(file, [metric(5, reward=0.9)])
    asyncio.run(runs.read_changes())
    [run] = runs.list_runs()
    assert run.metrics.binned.list_steps() == [1, 2, 3, 4, 5]


# ------------------------------------------------------------------------------------------ states


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    append(tmp_path / "a" / "metrics.jsonl", [metric(1, step_time=2.0)])
    return tmp_path / "a"


def test_a_run_that_wrote_lately_is_running(run_folder: Path) -> None:
    assert only(run_folder.parent).get_state(time.time()) == (State.RUNNING, "")


def test_a_run_that_is_silent_for_long_is_stalled(run_folder: Path) -> None:
    run = only(run_folder.parent)
    assert run.get_state(time.time() + 290)[0] is State.RUNNING
    assert run.get_state(time.time() + 310)[0] is State.STALLED


def test_a_run_that_wrote_its_settings_alone_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.resolved.json").write_text('{"seed": 7}')
    run = only(tmp_path)
    assert run.get_state(time.time()) == (State.RUNNING, "")
    assert run.get_state(time.time() + 310)[0] is State.STALLED


@pytest.fixture
def writer() -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """Starts processes that hold a lock as `gradus train` and `gradus eval` do, and are killed by
    SIGKILL."""
    code = (
        "import sys, pathlib\nfrom gradus.folder_lock import locked\nwith"
        " locked(pathlib.Path(sys.argv[1]), 'taken'):\n    print(flush=True)\n    sys.stdin.read()"
    )
    started: list[subprocess.Popen[bytes]] = []

    def start(lock: Path) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", code, str(lock)], **pipes)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_run_whose_process_was_killed_is_crashed_and_one_that_lives_is_stalled(
    run_folder: Path, writer: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    run = only(run_folder.parent)
    process = writer(run_folder / ".lock")
    assert run.get_state(time.time() + 20) == (State.RUNNING, "")
    assert run.get_state(time.time() + 310)[0] is State.STALLED
    process.kill()
    process.wait()
    state, why = run.get_state(time.time() + 20)
    assert (state, "SIGKILL" in why) == (State.CRASHED, True)
    (run_folder / ".lock").write_text(
        "00000000-0000-0000-0000-000000000000"
    )  # another machine's, or before a restart
    assert run.get_state(time.time() + 20)[0] is State.RUNNING
    writer(run_folder / ".lock")
    assert run.get_state(time.time() + 20)[0] is State.RUNNING


def test_an_evaluation_whose_process_was_killed_is_stopped(
    tmp_path: Path, writer: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    append(tmp_path / "base" / "plan.json", [{"model": "m"}])
    append(
        tmp_path / "base" / "completions.jsonl",
        [{"mode": "greedy", "prompt_id": "t", "reward": 1.0}],
    )
    process = writer(tmp_path / "base" / ".completions.jsonl.lock")
    run = only(tmp_path)
    assert run.get_state(time.time() + 20)[0] is State.RUNNING
    process.kill()
    process.wait()
    assert run.get_state(time.time() + 20)[0] is State.STOPPED


def test_looking_at_a_lock_keeps_no_run_out(
    run_folder: Path, writer: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    process = writer(run_folder / ".lock")
    process.kill()
    process.wait()
    with (run_folder / ".lock").open("rb") as probe:
        assert is_abandoned(probe)
        timer = threading.Timer(0.15, probe.close)
        timer.start()
        with locked(run_folder / ".lock", "taken"):
            timer.join()
    with (run_folder / ".lock").open("rb") as probe:
        assert is_abandoned(probe)


def test_slow_steps_are_given_more_time(run_folder: Path) -> None:
    append(run_folder / "metrics.jsonl", [metric(2, step_time=120.0)])
    run = only(run_folder.parent)
    assert run.get_state(time.time() + 1100)[0] is State.RUNNING
    assert run.get_state(time.time() + 1300)[0] is State.STALLED


def test_a_run_with_a_final_model_is_finished(run_folder: Path) -> None:
    (run_folder / "final").mkdir()
    assert only(run_folder.parent).get_state(time.time() + 1e6)[0] is State.FINISHED


def test_a_final_model_of_before_does_not_make_a_run_finished(run_folder: Path) -> None:
    (run_folder / "final").mkdir()
    os.utime(run_folder / "final", (NOW - 1000, NOW - 1000))
    assert only(run_folder.parent).get_state(time.time())[0] is State.RUNNING


@pytest.mark.parametrize(
    "line",
    [
        "stopped: step 3: none of 8 samples could be graded. Start `gradus serve`",
        (
            "stopped by SIGTERM. Start again with the same config and output_dir to resume from"
            " checkpoint-2."
        ),
    ],
)
def test_a_run_that_said_why_it_stopped_is_quoted(run_folder: Path, line: str) -> None:
    (run_folder / "training.log").write_text(
        f"2026-01-01 10:00:00 step 2/7\n2026-01-01 10:00:01 {line}\n"
    )
    state, why = only(run_folder.parent).get_state(time.time())
    assert state is State.STOPPED
    assert line.removeprefix("stopped: ")[:30] in why


@pytest.mark.parametrize(("end", "state"), [("refused", State.REFUSED), ("crashed", State.CRASHED)])
def test_a_run_that_was_refused_or_crashed_is_called_so(
    run_folder: Path, end: str, state: State
) -> None:
    (run_folder / "training.log").write_text(
        f"2026-01-01 10:00:00 {end}: lora.r is 0\nand more of the message\n"
    )
    assert only(run_folder.parent).get_state(time.time()) == (state, "lora.r is 0")


def test_a_run_that_was_refused_before_anything_else_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "training.log").write_text(
        "2026-01-01 10:00:00 refused: there are no tasks\n"
    )
    told = build_summary(only(tmp_path), NOW)
    assert (told["id"], told["kind"], told["state"]) == ("a", "run", "refused")


def test_a_folder_of_gradus_eval_is_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "eval" / "base"
    append(folder / "plan.json", [{"model": "m", "grader": "toy"}])
    append(folder / "completions.jsonl", [{"mode": "greedy", "prompt_id": "t", "reward": 1.0}])
    runs = followed(tmp_path)
    [run] = runs.list_runs()
    told = build_summary(run, time.time())
    assert [told[name] for name in ("id", "kind", "state", "model", "grader")] == [
        "eval/base",
        "evaluation",
        "running",
        "m",
        "toy",
    ]
    assert run.get_state(time.time() + 1e6)[0] is State.STALLED
    found, records = rich_evaluation("base", 0.5)
    stored(folder, found, records)
    assert look_again(runs, monkeypatch)[0] == ["eval/base"]
    told = build_summary(run, time.time() + 1e6)
    assert (told["state"], told["model"], told["grader"]) == ("finished", found.model, "ocaml")
    assert told["held_out"]["tasks"] == "ocaml.jsonl"


def test_evaluations_without_a_page_of_their_own_are_finished_too(tmp_path: Path) -> None:
    append(tmp_path / "a" / "plan.json", [{"model": "m"}])
    append(tmp_path / "a" / "calls.json", [{"schema": "gradus/calls@1"}])
    assert build_summary(only(tmp_path), NOW + 1e6)["state"] == "finished"


def test_a_folder_of_evaluations_alone_is_finished(tmp_path: Path) -> None:
    append(tmp_path / "a" / "eval" / "x.json", [{"measurements": [{"mode": "greedy"}]}])
    assert only(tmp_path).get_state(NOW)[0] is State.FINISHED


def test_what_users_say_in_urls_is_not_shown(run_folder: Path) -> None:
    config = {
        "reward": {"urls": ["http://me:secret@grader:8000"], "rubric": None},
        "grpo": {"max_steps": 7},
    }
    (run_folder / "config.resolved.json").write_text(json.dumps(config))
    run = only(run_folder.parent)
    assert ("reward.urls", '["http://…@grader:8000"]') in run.list_settings()
    assert ("reward.rubric", "null") in run.list_settings()
    assert run.max_steps == 7


def test_steps_of_the_warm_start_are_not_those_that_were_asked_of_grpo(tmp_path: Path) -> None:
    append(tmp_path / "a" / "sft_metrics.jsonl", [{"step": 80, "loss": 0.3, "learning_rate": 1e-3}])
    (tmp_path / "a" / "config.resolved.json").write_text(json.dumps({"grpo": {"max_steps": 80}}))
    told = build_summary(only(tmp_path), NOW)
    assert (told["phase"], told["step"], told["max_steps"]) == ("warm start", 80, None)
    append(tmp_path / "a" / "metrics.jsonl", [metric(1)])
    told = build_summary(only(tmp_path), NOW)
    assert (told["phase"], told["step"], told["max_steps"]) == ("", 1, 80)


@pytest.mark.parametrize(
    "config",
    [
        {"grpo": {"max_steps": 7}},
        {"stage": "sft", "sft": {"max_steps": 7}, "grpo": {"max_steps": 8}},
        {"stage": "reward", "reward": {"max_steps": None}, "reward_model": {"max_steps": 7}},
    ],
)
def test_each_stage_says_in_its_own_section_how_many_steps_there_are(
    run_folder: Path, config: Any
) -> None:
    (run_folder / "config.resolved.json").write_text(json.dumps(config))
    assert only(run_folder.parent).max_steps == 7


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[1]", '{"grpo": 5}', '{"grpo": {"max_steps": "x"}}', "[" * 99_999]
)
def test_a_broken_configuration_is_an_empty_one(run_folder: Path, text: str) -> None:
    (run_folder / "config.resolved.json").write_text(text)
    run = only(run_folder.parent)
    assert run.max_steps is None
    assert run.group_size is None
    assert len(run.list_settings()) <= 1


# ---------------------------------------------------------------------- evaluations


def test_evaluations_stand_in_the_order_of_their_steps(tmp_path: Path) -> None:
    rich_run(tmp_path / "a")
    run = only(tmp_path)
    assert [one.name for one in run.evaluations.list_by_step()] == [
        "before",
        "step-20",
        "step-40",
        "after",
    ]


def test_an_evaluation_that_comes_changes_or_goes_is_noticed(tmp_path: Path) -> None:
    tiny_run(tmp_path / "a")
    runs = followed(tmp_path)
    file = tmp_path / "a" / "eval" / "before.json"
    text = file.read_text()
    for change in (file.unlink, lambda: file.write_text(text + " "), lambda: file.write_text("{")):
        change()
        assert read_changes(runs) == ["a"]
    [run] = runs.list_runs()
    assert run.evaluations.unreadable == ["eval/before.json"]


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"measurements": {}},
        {"measurements": []},
        {"measurements": [5, {"mode": "other"}, {"mode": []}]},
    ],
)
def test_what_is_no_evaluation_is_none(tmp_path: Path, given: Any) -> None:
    assert evaluation_in(tmp_path / "x.json", given) is None


def evaluation_in(path: Path, given: Any) -> Evaluation | None:
    path.write_text(json.dumps(given))
    return read_evaluation(ConfinedDirectory(path.parent), path)


def test_figures_that_are_no_numbers_are_unknown(tmp_path: Path) -> None:
    odd = {"mode": "greedy", "pass_at": {"1": {"value": "high"}}, "mean_reward": 5, "graded": None}
    found = evaluation_in(tmp_path / "step-7.json", {"measurements": [odd]})
    assert found is not None
    assert found.step == 7
    [figures] = found.figures
    assert (figures["pass_rate"], figures["reward"], figures["graded"]) == (None, None, 0)


def test_names_tell_steps() -> None:
    assert [
        parse_step(name) for name in ("before", "step-40", "after", "step-x", "step-" + "9" * 99)
    ] == [
        0,
        40,
        None,
        None,
        None,
    ]


# ------------------------------------------------------------------------------------------- views


def test_stages_stand_in_the_order_of_the_grader(tmp_path: Path) -> None:
    rich_run(tmp_path / "a")
    append(tmp_path / "b" / "metrics.jsonl", [metric(1)])
    told = [build_detail(run, NOW)["stages"] for run in followed(tmp_path).list_runs()]
    assert told[0][:4] == ["extract", "types", "compile", "tests"]
    assert told[1] == [str(stage) for stage in Stage], "of no known grader, that of the contract"


def test_a_group_is_told_with_its_completions(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    append(
        folder / "completions.jsonl",
        [sample(step, n, "p", n / 2) for step in (1, 2, 3) for n in range(3)],
    )
    runs = followed(tmp_path)
    [run] = runs.list_runs()
    group = run.groups.get_newest()
    assert group is not None
    told = build_group(runs.confined, run, group)
    assert (told["number"], told["range"], told["step"], told["of"]) == (2, (0, 2), 3, 3)
    assert [one["reward"] for one in told["samples"]] == [0.0, 0.5, 1.0]


def test_a_conversation_is_told_as_a_text(tmp_path: Path) -> None:
    prompt = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "add"}, 5]
    append(tmp_path / "a" / "completions.jsonl", [sample(1, prompt=prompt)])
    runs = followed(tmp_path)
    [run] = runs.list_runs()
    group = run.groups.get(0)
    assert group is not None
    assert build_group(runs.confined, run, group)["prompt"] == "[system]\nbe brief\n\n[user]\nadd"


def test_everything_that_is_told_of_a_hostile_run_is_json(tmp_path: Path) -> None:
    hostile_run(tmp_path / "a")
    odd = {
        "reward": 0.5,
        "components": {"x": float("nan"), "y": [1]},
        "tests": {"passed": "a"},
        "flags": "not a list",
    }
    append(
        tmp_path / "a" / "completions.jsonl",
        [sample(2, **odd, diagnostics=[5, {}, {"line": "x"}], fault=[])],
    )
    append(
        tmp_path / "a" / "completions.jsonl",
        [sample(3, completion="x" * 300_000, prompt=7, flags=[None] * 99)],
    )
    runs = followed(tmp_path)
    [run] = runs.list_runs()
    told = [build_summary(run, NOW), build_detail(run, NOW)]
    first, last = run.groups.numbers or (0, -1)
    groups = [run.groups.get(number) for number in range(first, last + 1)]
    told += [build_group(runs.confined, run, group) for group in groups if group]
    assert len(told) == 5
    text = json.dumps(told, allow_nan=False)
    assert len(text) < 200_000
    assert '"left_out": 280000' in text


# ---------------------------------------------------------------------- Prometheus


def values(runs: Runs) -> dict[tuple[str, ...], float]:
    text = render_metrics(runs.list_runs(), time.time()).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = [label for _, label in sorted(one.labels.items())]
            found[(one.name.removeprefix("gradus_train_"), *labels)] = one.value
    return found


def test_prometheus_is_told_the_newest_values(tmp_path: Path) -> None:
    lines = [
        metric(1, **{"gradus/flag/stub": 0.5, "gradus/component/tests": 0.1}),
        metric(
            2,
            reward=0.75,
            entropy=0.3,
            step_time=4.0,
            **{
                "gradus/component/tests": 0.6,
                "gradus/stage/tests": 1.0,
                "time/grade_s": 0.5,
                "completions/mean_length": 17.0,
                "generation/sync_logprob_difference_max": 1e-6,
                "frac_reward_zero_std": 0.9,
            },
        ),
    ]
    append(tmp_path / "a" / "metrics.jsonl", lines)
    append(tmp_path / "a" / "sft_metrics.jsonl", [{"step": 20, "loss": 1.5}])
    found = values(followed(tmp_path))
    assert found["step", "a"] == 2
    assert found["reward", "a"] == 0.75
    assert found["reward_component", "tests", "a"] == 0.6
    assert found["flag", "stub", "a"] == 0
    assert found["stage", "a", "tests"] == 1
    assert found["step_part_seconds", "grade", "a"] == 0.5
    assert found["completion_tokens", "a", "mean"] == 17
    assert found["sync_logprob_difference_max", "a"] == 1e-6
    assert found["warm_start_loss", "a"] == 1.5
    assert found["state", "a", "running"] == 1
    assert found["state", "a", "stalled"] == 0
    assert ("kl", "a") not in found


def test_prometheus_is_told_held_out_figures(tmp_path: Path) -> None:
    tiny_run(tmp_path / "a")
    found = values(followed(tmp_path))
    assert found["held_out_pass_rate", "sampled", "a"] == pytest.approx(0.875)
    assert found["held_out_step", "a"] == 3


def test_what_a_run_writes_cannot_break_the_exposition(tmp_path: Path) -> None:
    names = [
        'gradus/flag/a"} 1\n# HELP',
        "gradus/flag/\\",
        "gradus/flag/\ud800",
        "gradus/component/é\u2028",
    ]
    append(tmp_path / 'r"un\n1' / "metrics.jsonl", [metric(1, **dict.fromkeys(names, 0.5))])
    found = values(followed(tmp_path))
    assert found["flag", 'a"} 1\n# HELP', 'r"un\n1'] == 0.5
    assert sum(key[0] == "flag" for key in found) == 3


def test_a_folder_without_runs_has_an_empty_exposition(tmp_path: Path) -> None:
    assert render_metrics(followed(tmp_path).list_runs(), NOW) == b""


def test_every_metric_of_the_table_is_exported_and_no_other(tmp_path: Path) -> None:
    rich_run(tmp_path / "a")
    everything = {key: 1.0 for key, _ in {**METRICS["newest"], **METRICS["latest"]}.values()}
    everything |= {
        key.format(one): 1.0 for _, _, key, values in METRICS["labelled"].values() for one in values
    }
    everything |= {prefix + "x": 1.0 for _, prefix, _ in METRICS["families"].values()}
    append(tmp_path / "a" / "metrics.jsonl", [metric(61, **everything)])
    append(tmp_path / "a" / "sft_metrics.jsonl", [{"step": 1, "loss": 1.0, "eval_loss": 1.0}])
    assert {key[0] for key in values(followed(tmp_path))} == {
        name for table in METRICS.values() for name in table
    }
