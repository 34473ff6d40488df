"""Stages of training with a tiny model: each learns what its rows say, goes on from a checkpoint as
if never stopped, and keeps its updates when memory runs out."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from report_data import answer_in

from gradus.errors import Misuse
from tests.tiny_models import built, make_model, reward_model_scores
from trainer.config.stages import load_stage
from trainer.runs.folder import read_lines
from trainer.train import main

pytestmark = pytest.mark.training

WORDS = ("red", "blue", "green", "fish", "bird", "tree")
PAIRS = [(one, other) for one in WORDS for other in WORDS if one != other]
ANSWERS = [{"prompt": f"{one} {other} ->", "completion": f" {other} {one}"} for one, other in PAIRS]
PREFERENCES = [
    {"prompt": row["prompt"], "chosen": row["completion"], "rejected": row["completion"][::-1]}
    for row in ANSWERS
]
STEPS = 12
COMMON = {
    "learning_rate": 3e-3,
    "logging_steps": 1,
    "save_steps": 4,
    "per_device_train_batch_size": 8,
}
BY_ROWS = {**COMMON, "max_steps": STEPS, "max_length": 64}
STAGES: dict[str, dict[str, Any]] = {
    "sft": {"data": {"dataset": "answers.jsonl", "held_out": 0.2}, "sft": BY_ROWS},
    "dpo": {"data": {"dataset": "pairs.jsonl", "held_out": 0.2}, "dpo": BY_ROWS},
    "reward": {"data": {"dataset": "pairs.jsonl", "held_out": 0.2}, "reward_model": BY_ROWS},
    "pretrain": {
        "data": {
            "dataset": "answers.txt",
            "held_out": 0.2,
            "curriculum": [{"length": 8, "steps": 5}, {"length": 16, "steps": STEPS - 5}],
        },
        "pretrain": COMMON,
    },
}


def only(*kept: str) -> list[Any]:
    """All stages, of which those that show nothing else than these run in `make test-slow`."""
    return [pytest.param(name, marks=() if name in kept else pytest.mark.slow) for name in STAGES]


SECTIONS = {"sft": "sft", "dpo": "dpo", "reward": "reward_model", "pretrain": "pretrain"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen3", tmp_path_factory.mktemp("models") / "qwen3")


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen3_moe", tmp_path_factory.mktemp("models") / "qwen3_moe")


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a stage's run that never stopped. It is trained once and only read."""

    @functools.cache
    def trained(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        assert main(written_in(folder, model)(name), stage=name) == 0
        return folder / "run"

    return trained


@pytest.fixture
def stage(tmp_path: Path, model: Path) -> Callable[..., Path]:
    return written_in(tmp_path, model)


def written_in(folder: Path, model: Path) -> Callable[..., Path]:
    """Writes rows and the config of a stage; `options` go into its own section, other keys to the
    top."""
    for name, rows in (("answers", ANSWERS), ("pairs", PREFERENCES)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "answers.txt").write_text(
        "\n".join(row["prompt"] + row["completion"] for row in ANSWERS)
    )

    def written(
        name: str, run: str = "run", options: dict[str, Any] | None = None, **top: Any
    ) -> Path:
        told = {
            "stage": name,
            "model": {"name": str(model), "device": "cpu", "cpu_threads": 1},
            "output_dir": str(folder / run),
            **STAGES[name],
            **top,
        }
        told[SECTIONS[name]] = {**told[SECTIONS[name]], **(options or {})}
        path = folder / f"{run}.yaml"
        path.write_text(yaml.safe_dump(told))
        return path

    return written


def weights_in(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {
        name: weight
        for file in folder.glob("*.safetensors")
        for name, weight in load_file(file).items()
    }


def lines_of(run: Path, name: str) -> list[float]:
    return [line[name] for line in read_lines(run / "metrics.jsonl") if name in line]


def measured(run: Path, name: str) -> tuple[float, float]:
    """Before the first step and after the last."""
    lines = {line["step"]: line[name] for line in read_lines(run / "metrics.jsonl") if name in line}
    return lines[0], lines[STEPS]


# ---------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("name", list(STAGES))
def test_a_stage_learns_and_leaves_the_folder_of_a_run(
    name: str, whole: Callable[[str], Path]
) -> None:
    run = whole(name)
    losses = lines_of(run, "loss")
    assert len(losses) == STEPS
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
    before, after = measured(run, "eval_loss")
    assert after < before
    resolved = json.loads((run / "config.resolved.json").read_text())
    assert (resolved["stage"], resolved[SECTIONS[name]]["learning_rate"]) == (name, 3e-3)
    assert {"torch", "trl"} <= set(json.loads((run / "environment.json").read_text())["versions"])
    assert "held out" in json.loads((run / "data.json").read_text())["description"]
    assert {"training.log", "final", f"checkpoint-{STEPS}"} <= {path.name for path in run.iterdir()}


def test_preferences_raise_accuracy_and_margins_on_pairs_never_seen(
    whole: Callable[[str], Path],
) -> None:
    assert measured(whole("dpo"), "eval_rewards/margins")[1] > 0.1
    assert measured(whole("dpo"), "eval_rewards/accuracies")[1] > 0.9


def test_preferences_log_how_far_log_probabilities_are_from_the_reference(
    whole: Callable[[str], Path],
) -> None:
    before, after = measured(whole("dpo"), "eval_kl")
    assert before == 0
    moved = [
        measured(whole("dpo"), f"eval_rewards/{kind}")[1] / 0.1 for kind in ("chosen", "rejected")
    ]  # beta is 0.1
    assert after == pytest.approx((abs(moved[0]) + abs(moved[1])) / 2)
    assert after > 0.5
    assert len(lines_of(whole("dpo"), "kl")) == STEPS


def test_preferences_that_go_too_far_from_the_reference_warn_and_end_in_order(
    stage: Callable[..., Path], tmp_path: Path
) -> None:
    rules = {"kl": 0.4, "kl_warning": 0.1, "steps": 2}
    assert main(stage("dpo", stop_when=rules, data={"dataset": "pairs.jsonl"})) == 0
    told = (tmp_path / "run" / "training.log").read_text()
    warned, ended = told.index("over stop_when.kl_warning 0.1"), told.index("stop_when: kl is ")
    assert warned < ended
    assert 2 < len(lines_of(tmp_path / "run", "loss")) < STEPS
    assert (tmp_path / "run" / "final" / "model.safetensors").exists()


def test_a_reward_model_puts_the_better_answer_first(whole: Callable[[str], Path]) -> None:
    judge = whole("reward") / "final"
    prompts = [row["prompt"] for row in PREFERENCES]
    better = reward_model_scores(judge, prompts, [row["chosen"] for row in PREFERENCES])
    worse = reward_model_scores(judge, prompts, [row["rejected"] for row in PREFERENCES])
    assert sum(one > other for one, other in zip(better, worse, strict=True)) > 0.9 * len(prompts)


def test_pretraining_tells_perplexity_and_lengthens_its_blocks(
    whole: Callable[[str], Path],
) -> None:
    before, after = measured(whole("pretrain"), "eval_perplexity")
    assert after < 0.5 * before
    assert lines_of(whole("pretrain"), "length") == [8] * 5 + [16] * (STEPS - 5)


def test_the_loss_of_worked_answers_is_on_the_answer_only(stage: Callable[..., Path]) -> None:
    trainer = built(load_stage(stage("sft")))
    row = trainer.train_dataset[0]
    asked = [
        token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label == -100
    ]
    answered = [label for label in row["labels"] if label != -100]
    assert trainer.processing_class.decode(asked).endswith("->")
    assert trainer.processing_class.decode(answered).endswith("<|im_end|>")


def test_packing_puts_several_rows_into_one(stage: Callable[..., Path]) -> None:
    trainer = built(load_stage(stage("sft", options={"packing": True})))
    assert len(trainer.train_dataset) < len(ANSWERS) / 2
    assert max(len(row["input_ids"]) for row in trainer.train_dataset) <= 64


DPO_VARIANTS: dict[str, dict[str, Any]] = {
    "a name instead of a list": {"loss_type": "ipo"},
    "two losses": {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.1]},
    "label smoothing": {"label_smoothing": 0.1},
    "a reference that follows": {"sync_ref_model": True, "ref_model_sync_steps": 2},
    "a reference asked once": {"precompute_ref_log_probs": True},
    **{
        name: {"loss_type": [name]}
        for name in ("hinge", "robust", "apo_zero", "nca_pair", "discopop")
    },
}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, marks=() if name == "two losses" else pytest.mark.slow, id=name)
        for name, options in DPO_VARIANTS.items()
    ],
)
def test_losses_and_references_of_preferences_take_steps(
    options: dict[str, Any], stage: Callable[..., Path], tmp_path: Path
) -> None:
    path = stage("dpo", options={**options, "max_steps": 4}, data={"dataset": "pairs.jsonl"})
    assert main(path) == 0
    losses = lines_of(tmp_path / "run", "loss")
    assert len(losses) == 4
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", only("reward", "pretrain"))
def test_adapters_learn_too_and_are_saved_as_adapters(
    name: str, stage: Callable[..., Path], tmp_path: Path
) -> None:
    options = {"learning_rate": 2e-2}
    assert main(stage(name, options=options, lora={"r": 4, "alpha": 8})) == 0
    before, after = measured(tmp_path / "run", "eval_loss")
    assert after < before
    saved = weights_in(tmp_path / "run" / "final")
    assert all("lora" in weight or "score" in weight for weight in saved)
    assert any("score" in weight for weight in saved) is (name == "reward")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(STAGES))
def test_adapters_on_weights_of_four_bits_learn_too(
    name: str, stage: Callable[..., Path], tmp_path: Path
) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed (extra `quantized`)")
    # bitsandbytes' kernels for CPUs want layers that are wider than those of the tiniest models
    wide = {"name": "fresh:qwen3", "device": "cpu", "cpu_threads": 1, "load_in_4bit": True}
    assert (
        main(stage(name, model=wide, options={"learning_rate": 2e-2}, lora={"r": 4, "alpha": 8}))
        == 0
    )
    before, after = measured(tmp_path / "run", "eval_loss")
    assert after < before
    if name == "reward":
        assert len(reward_model_scores(tmp_path / "run" / "final", ["p"], ["c"])) == 1


# ---------------------------------------------------------------------------------------- going on


@pytest.mark.parametrize("name", only("dpo", "pretrain"))
def test_a_run_that_goes_on_ends_where_one_that_never_stopped_does(
    name: str, whole: Callable[[str], Path], stage: Callable[..., Path], tmp_path: Path
) -> None:
    first = whole(name)
    again = tmp_path / "again"
    # What a kill after the checkpoint of step 4 leaves behind, a line of a later step and half a
    # checkpoint included.
    again.mkdir()
    shutil.copytree(first / "checkpoint-4", again / "checkpoint-4")
    shutil.copytree(first / "checkpoint-8", again / "checkpoint-8")
    (again / "checkpoint-8" / "optimizer.pt").write_bytes(b"torn")
    (again / "checkpoint-8" / "trainer_state.json").unlink()  # which is written last
    kept = [line for line in read_lines(first / "metrics.jsonl") if line["step"] <= 6]
    (again / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert main(stage(name, run="again")) == 0
    assert "resuming from" in (again / "training.log").read_text()
    assert same_weights(first / "final", again / "final")
    assert lines_of(first, "step") == lines_of(again, "step")


def same_weights(one: Path, other: Path) -> bool:
    first, second = weights_in(one), weights_in(other)
    return set(first) == set(second) and all(first[name].equal(second[name]) for name in first)


def test_a_run_that_is_done_is_not_trained_further(
    whole: Callable[[str], Path], stage: Callable[..., Path], tmp_path: Path
) -> None:
    shutil.copytree(whole("sft"), tmp_path / "run", ignore=shutil.ignore_patterns("final"))
    assert main(stage("sft")) == 0
    assert f"all {STEPS} steps are done already" in (tmp_path / "run" / "training.log").read_text()
    assert same_weights(whole("sft") / "final", tmp_path / "run" / "final")


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (["--learning_rate", "0.5"], "sft.learning_rate: 0.003 -> 0.5"),
        (["--seed", "7"], "seed: 42 -> 7"),
        (["--data.held_out", "0.5"], "data.held_out: "),
    ],
)
def test_a_run_is_not_resumed_with_other_settings_unless_they_are_accepted(
    whole: Callable[[str], Path],
    stage: Callable[..., Path],
    tmp_path: Path,
    options: list[str],
    difference: str,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole("sft"), run)
    before = {path: path.read_bytes() for path in run.rglob("*.json*")}
    longer = ["--max_steps", str(STEPS + 1)]
    with pytest.raises(Misuse, match=re.escape(difference)) as raised:
        main(stage("sft"), [*options, *longer])
    assert "--accept-changes" in str(raised.value)
    assert main(stage("sft"), [*options, *longer], dry_run=True) == 2
    assert {path: path.read_bytes() for path in run.rglob("*.json*")} == before

    assert main(stage("sft"), longer) == 0  # to go further is no change
    assert not (run / "changes.jsonl").exists()
    assert main(stage("sft"), [*options, "--max_steps", str(STEPS + 2)], accept_changes=True) == 0
    (line,) = read_lines(run / "changes.jsonl")
    assert line["step"] == STEPS + 1
    assert difference.partition(":")[0] in line["changes"]


def test_a_finished_folder_stays_as_it_is(
    whole: Callable[[str], Path], stage: Callable[..., Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole("sft"), run)

    logs = ("training.log", ".lock")

    def take_files() -> dict[Path, tuple[int, bytes]]:
        files = [path for path in run.rglob("*") if path.is_file() and path.name not in logs]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = take_files()
    assert main(stage("sft")) == 0
    assert main(stage("sft"), ["--logging_steps", "1"]) == 0
    assert "done before" in (run / "training.log").read_text()
    assert take_files() == before

    for checkpoint in run.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    with pytest.raises(Misuse, match="finished run with other settings .sft.learning_rate"):
        main(stage("sft"), ["--learning_rate", "0.5"])
    assert main(stage("sft"), ["--learning_rate", "0.5"], dry_run=True) == 2
    assert {path: before[path] for path in take_files()} == take_files()


def test_other_rows_under_the_same_name_are_other_data(
    whole: Callable[[str], Path], stage: Callable[..., Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole("sft"), run)
    config = stage("sft")
    rows = config.with_name("answers.jsonl")
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(Misuse, match="data.json: other data than at the start"):
        main(config, ["--max_steps", str(STEPS + 1)])


def test_a_fresh_model_of_other_settings_is_set_aside(
    stage: Callable[..., Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    fresh = ["--model.name", "fresh:qwen3", "--max_steps", "1", "--save_strategy", "no"]
    assert main(stage("sft"), [*fresh, "--model.fresh.layers", "1"]) == 0
    shutil.rmtree(run / "final")  # as if it had been killed
    assert main(stage("sft"), [*fresh, "--model.fresh.layers", "2"]) == 0
    layers = [
        json.loads((folder / "config.json").read_text())["num_hidden_layers"]
        for folder in (run / "model", next(run.glob("previous-*/model")))
    ]
    assert layers == [2, 1]


def test_a_signal_ends_a_run_after_its_step_with_a_checkpoint(
    stage: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    from trainer.stages.rows import OurSftTrainer

    step = OurSftTrainer.training_step

    def interrupted(self: Any, *args: Any, **named: Any) -> Any:
        if self.state.global_step == 4:
            signal.raise_signal(signal.SIGTERM)
        return step(self, *args, **named)

    monkeypatch.setattr(OurSftTrainer, "training_step", interrupted)
    path = stage("sft")
    assert main(path) == 128 + signal.SIGTERM
    assert (tmp_path / "run" / "checkpoint-5").is_dir()
    assert not (tmp_path / "run" / "final").exists()
    said = (tmp_path / "run" / "training.log").read_text()
    assert (
        "stopped by SIGTERM. Start again with the same config and output_dir to resume from"
        " checkpoint-5" in said
    )
    monkeypatch.undo()
    assert main(path) == 0
    assert [
        line["step"] for line in read_lines(tmp_path / "run" / "metrics.jsonl") if "loss" in line
    ] == list(range(1, STEPS + 1))


# ---------------------------------------------------------------------- out of memory

TRAINERS = {
    "sft": "rows.OurSftTrainer",
    "dpo": "rows.OurDpoTrainer",
    "reward": "rows.OurRewardTrainer",
    "pretrain": "pretrain.OurPretrainer",
}


def run_out(
    monkeypatch: pytest.MonkeyPatch, name: str, *, above: int, at_step: int, where: str
) -> None:
    """Lets memory run out with more than so many samples at a time, from a step on. In pretraining
    an allocation really fails, for which no CPU has the memory; the error of the other stages is
    that of torch on a GPU."""
    import importlib

    import torch

    module, _, trainer_name = TRAINERS[name].partition(".")
    trainer = getattr(importlib.import_module(f"trainer.stages.{module}"), trainer_name)
    original = getattr(trainer, where)

    def fails(self: Any, *args: Any, **named: Any) -> Any:
        done = original(self, *args, **named)
        if self.state.global_step >= at_step and self.args.per_device_train_batch_size > above:
            if name == "pretrain":
                torch.empty(2**50)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return done

    monkeypatch.setattr(trainer, where, fails)


@pytest.mark.parametrize("name", only("pretrain"))
def test_when_memory_runs_out_batches_get_smaller_and_updates_stay_the_same(
    name: str,
    whole: Callable[[str], Path],
    stage: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The metrics of a step are means over its parts, and the mean of means of answers of one length
    # is the mean.
    run_out(monkeypatch, name, above=2, at_step=5, where="training_step")
    assert main(stage(name, run="poor", options={"save_steps": 100})) == 0
    run = whole(name)
    poor = tmp_path / "poor"
    said = (poor / "training.log").read_text()
    cause = (
        "can't allocate memory"
        if name == "pretrain"
        else "CUDA out of memory. Tried to allocate 2.00"
    )
    assert re.search(rf"out of memory after step 5 with 8 samples at a time \(.*{cause}", said)
    assert "continuing with 4 at a time, 2 times for each update, from checkpoint-5" in said
    assert "continuing with 2 at a time, 4 times for each update, from checkpoint-5" in said
    assert lines_of(poor, "loss") == pytest.approx(lines_of(run, "loss"), rel=1e-3)
    first, second = weights_in(run / "final"), weights_in(poor / "final")
    assert all(first[weight].allclose(second[weight], atol=2e-3) for weight in first)
    assert [line["step"] for line in read_lines(poor / "metrics.jsonl") if "loss" in line] == list(
        range(1, STEPS + 1)
    )


def test_memory_that_runs_out_amid_an_update_begins_at_the_checkpoint_before(
    stage: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.runs.oom_recovery import UpdateWatch

    run_out(monkeypatch, "sft", above=4, at_step=6, where="training_step")
    # The weights may be half changed: the optimizer is at work.
    monkeypatch.setattr(
        UpdateWatch, "on_optimizer_step", lambda self, args, state, control, **_: None
    )
    assert main(stage("sft")) == 0
    assert "from checkpoint-4" in (tmp_path / "run" / "training.log").read_text()
    assert len(lines_of(tmp_path / "run", "loss")) == STEPS


def test_one_sample_that_is_too_much_ends_the_run_with_advice(
    stage: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_out(monkeypatch, "sft", above=0, at_step=0, where="training_step")
    with pytest.raises(Misuse, match=r"out of memory with one sample at a time .*lower max_length"):
        main(stage("sft", options={"per_device_train_batch_size": 2}))


def test_a_run_that_is_to_stop_when_memory_runs_out_stops(
    stage: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_out(monkeypatch, "sft", above=4, at_step=2, where="training_step")
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        main(stage("sft", on_out_of_memory="stop"))


def test_other_errors_of_a_step_are_not_taken_for_memory(
    stage: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.stages.rows import OurSftTrainer

    def fails(self: Any, *args: Any, **named: Any) -> Any:
        raise RuntimeError("the shapes do not fit")

    monkeypatch.setattr(OurSftTrainer, "training_step", fails)
    with pytest.raises(RuntimeError, match="the shapes do not fit"):
        main(stage("sft"))


@pytest.mark.parametrize(
    ("batch", "smaller_batch", "times"), [(8, 4, 2), (6, 3, 2), (9, 3, 3), (7, 1, 7), (2, 1, 2)]
)
def test_the_samples_of_an_update_are_kept_for_any_batch(
    batch: int, smaller_batch: int, times: int
) -> None:
    from types import SimpleNamespace

    from trainer.runs.oom_recovery import OutOfMemory, build_smaller_options

    args = SimpleNamespace(
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=3,
    )
    new = build_smaller_options(
        {"steps_per_generation": 2, "beta": 0.1}, OutOfMemory("out", 1, args)
    )
    assert new == {
        "per_device_train_batch_size": smaller_batch,
        "per_device_eval_batch_size": 1,
        "gradient_accumulation_steps": 3 * times,
        "steps_per_generation": 2 * times,
        "beta": 0.1,
    }


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("error", "end"),
    [(Misuse("no rows"), "refused: no rows"), (MemoryError("full"), "crashed: full")],
)
def test_the_log_says_how_a_run_ended(
    error: Exception, end: str, stage: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise error

    config = stage("sft")
    monkeypatch.setattr("trainer.stages.base.train_stage", fail)
    with pytest.raises(type(error)):
        main(config)
    folder = Path(yaml.safe_load(config.read_text())["output_dir"])
    assert (folder / "training.log").read_text().splitlines()[-1].endswith(f" {end}")


def test_what_trl_refuses_is_said_with_the_section(stage: Callable[..., Path]) -> None:
    with pytest.raises(Misuse, match=r"sft: Invalid `loss_type`"):
        main(stage("sft", options={"loss_type": "best"}))
    with pytest.raises(Misuse, match=r"dpo: .*exo_pair"):
        main(stage("dpo", options={"loss_type": ["exo_pair"]}))


def test_kernels_that_are_not_installed_are_asked_for_before_anything_is_trained(
    stage: Callable[..., Path],
) -> None:
    import importlib.util

    if importlib.util.find_spec("liger_kernel") is not None:
        pytest.skip("they are installed")
    with pytest.raises(Misuse, match="pip install liger-kernel"):
        main(stage("sft", options={"use_liger_kernel": True}))


def test_measuring_without_anything_to_measure_on_is_refused(stage: Callable[..., Path]) -> None:
    with pytest.raises(
        Misuse, match=r"sft: .*`args.eval_strategy` .*didn't pass an `eval_dataset`"
    ):
        main(stage("sft", data={"dataset": "answers.jsonl"}, options={"eval_strategy": "steps"}))


def test_rows_that_are_too_long_are_counted_aloud(
    stage: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [
        {**row, "prompt": row["prompt"] + " x" * (200 if n < 3 else 0)}
        for n, row in enumerate(ANSWERS)
    ]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(stage("sft", data={"dataset": "long.jsonl"}, options={"max_steps": 2})) == 0
    said = (tmp_path / "run" / "training.log").read_text()
    assert "3 of 30 rows are left out: longer than max_length (64 tokens)" in said


@pytest.mark.parametrize("name", only("sft", "pretrain"))
def test_a_dry_run_checks_data_model_and_options_and_writes_nothing(
    name: str, stage: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(stage(name), dry_run=True) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["stage"] == name
    assert [
        line.split(":")[0] for line in told.err.splitlines() if line.startswith(("ok", "FAILED"))
    ] == [
        "ok     data",
        "ok     packages",
        "ok     model",
        f"ok     {SECTIONS[name]} options",
        "ok     run folder",
    ]
    assert not (tmp_path / "run").exists()


def test_a_dry_run_names_what_is_wrong(
    stage: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = stage("dpo", data={"dataset": "answers.jsonl"}, lora={"r": 4, "targets": ["nowhere"]})
    assert main(path, dry_run=True) == 2
    told = capsys.readouterr().err
    assert "FAILED data: " in told
    assert "unknown columns: completion" in told
    assert "FAILED model: lora.targets" in told


# ----------------------------------------------------------------------------------------- experts


@pytest.mark.parametrize("name", only("sft"))
def test_experts_that_would_stay_frozen_are_refused_in_every_stage(
    name: str, stage: Callable[..., Path], mixture: Path, tmp_path: Path
) -> None:
    experts = {"name": str(mixture), "device": "cpu", "cpu_threads": 1}
    attention = {"r": 4, "targets": ["q_proj", "v_proj"]}
    with pytest.raises(
        Misuse, match=r"there is no adapter on the experts of 2 layers.*mlp.experts.gate_up_proj"
    ):
        main(stage(name, model=experts, lora=attention))
    targets = ["q_proj", "v_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    assert main(stage(name, run="good", model=experts, lora={"r": 4, "targets": targets})) == 0
    saved = weights_in(tmp_path / "good" / "final")
    assert any("experts" in weight and bool(weights.any()) for weight, weights in saved.items())


# ------------------------------------------------------------------------------------------ report


@pytest.mark.parametrize("name", only("pretrain"))
def test_the_report_of_a_stage_shows_both_losses_and_misses_nothing(
    name: str, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    from trainer.evaluate.report import write_report

    run = answer_in(write_report(whole(name), tmp_path / "report.html"), "/api/run")
    assert run["missing"] == []
    steps = run["metrics"]["steps"]
    values = run["metrics"]["values"]
    together = [
        step
        for n, step in enumerate(steps)
        if None not in (values["loss"][n], values["eval_loss"][n])
    ]
    assert together[-1] == STEPS
    assert any(
        key.endswith(".learning_rate") and float(value) == 0.003 for key, value in run["settings"]
    )
