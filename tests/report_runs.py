"""Run folders made by hand for the tests of the report: one with figures that can be checked in the
head, one hostile, one that looks like a real run. Nothing here samples or grades.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradus.contract import Diagnostic, Faulted, Graded, Stage, TestCount, build_faulted
from gradus.descriptions import describe_offline
from gradus.errors import FaultKind
from gradus.wings import write_page
from trainer.evaluate.plan import Mode
from trainer.evaluate.report import comparisons
from trainer.evaluate.results import Evaluation, compute_measurement, write_outcome
from trainer.rewards.judge import Record, build_outcome

Result = Graded | Faulted
Results = Mapping[str, Sequence[Result]]
XSS = "</code></pre></script><img src=x onerror=alert(1)><svg onload=alert(2)>'\"{{7*7}}<!--"
MACHINE: dict[str, str | int | float | None] = {
    "system": "Linux x86_64",
    "cpus": 2,
    "memory_gib": 8.0,
    "gpu": None,
    "python": "3.11.7",
    "torch": "2.13.0",
}


def verdict(
    reward: float, *, passed: bool = False, stage: Stage = Stage.TESTS, **more: Any
) -> Graded:
    """A verdict with parts that fit its reward."""
    components = {"types": min(reward, 0.25), "tests": round(max(0.0, reward - 0.25), 6)}
    given: dict[str, Any] = {
        "id": "x",
        "reward": reward,
        "passed": passed,
        "stage": stage,
        "components": components,
        "tests": TestCount(passed=2 if passed else 0, total=2),
        "rubric": "ocaml/graduated@1",
        "grader": "ocaml@7",
        "toolchain": "ocaml 4.14.1",
        "cpu_ms": 1.0,
        "wall_ms": 1.0,
    }
    return Graded(**{**given, **more})


def record_of(
    result: Result,
    *,
    mode: Mode,
    task_id: str,
    kind: str | None,
    sample: int,
    prompt: str,
    completion: str,
) -> Record:
    """One line of an evaluation's completions, without what its source reports of how it was
    written."""
    asked: Record = {"mode": mode, "prompt_id": task_id, "kind": kind, "sample": sample}
    return {**asked, "prompt": prompt, "completion": completion, **build_outcome(result)}


OCAML = describe_offline("ocaml")
RIGHT = verdict(1.0, passed=True)
WRONG = verdict(0.25)
UNTYPED = verdict(
    0.0,
    stage=Stage.TYPES,
    diagnostics=(Diagnostic(stage=Stage.TYPES, line=1, message="Error: no"),),
)
STUCK: Faulted = build_faulted(
    "x", FaultKind.WORKER, "the worker that held job '81ab' died after 12 s", retryable=True
)


def evaluation(
    run: Path,
    name: str,
    results: Results,
    *,
    mode: Mode = "sampled",
    completion: str = "let f x = x + 1",
    **changed: Any,
) -> Evaluation:
    """Write an evaluation with these results by task; all tasks need equally many."""
    records: list[Record] = [
        record_of(
            result,
            mode=mode,
            task_id=task,
            kind="add",
            sample=n,
            prompt=f"(* {task} *)\n",
            completion=completion,
        )
        for task, given in results.items()
        for n, result in enumerate(given)
    ]
    samples = max(len(given) for given in results.values())
    figures = compute_measurement(
        records,
        mode=mode,
        temperature=float(mode == "sampled"),
        samples=samples,
        description=changed.get("grader_description", OCAML),
    )
    return _write(run, name, records, (figures,), **changed)


def _write(
    run: Path, name: str, records: list[Record], figures: tuple[Any, ...], **changed: Any
) -> Evaluation:
    given: dict[str, Any] = {
        "name": name,
        "created": f"2026-01-01T00:0{'before after'.find(name) % 10}:00+00:00",
        "grader_description": OCAML,
        "model": "fresh:qwen3",
        "tasks": "demo:ocaml/held-out",
        "tasks_sha256": "ab" * 32,
        "grader": "ocaml",
        "graders": ("ocaml@7",),
        "rubrics": ("ocaml/graduated@1",),
        "toolchains": ("ocaml 4.14.1",),
        "seed": 7,
        "max_new_tokens": 40,
        "duration_s": 1.5,
        "machine": MACHINE,
        "measurements": figures,
    }
    made = Evaluation(**{**given, **changed})
    write_outcome(run / "eval", made, records)
    return made


def lines(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def training_record(
    step: int, result: Graded | Faulted, completion: str = "let f x = x"
) -> dict[str, Any]:
    return {
        "step": step,
        "prompt_id": "t",
        "sample": 0,
        "prompt": "?",
        "completion": completion,
        **build_outcome(result),
    }


CONFIG: dict[str, Any] = {
    "model": {"name": "fresh:qwen3"},
    "lora": None,
    "data": {"dataset": "demo:ocaml"},
    "warm_start": {"dataset": "demo:ocaml/warm-start"},
    "reward": {"rubric": None},
    "grpo": {"max_steps": 3, "learning_rate": 5e-4, "num_generations": 2},
    "seed": 7,
}


def tiny_run(run: Path) -> Path:
    """Four tasks, two completions each, three steps. Every figure can be worked out by hand; see
    test_report.py."""
    run.mkdir(parents=True)
    (run / "config.resolved.json").write_text(json.dumps(CONFIG))
    lines(
        run / "metrics.jsonl",
        [
            {
                "step": 1,
                "time": 100.0,
                "reward": 0.25,
                "reward_std": 0.1,
                "entropy": 0.5,
                "step_time": 2.0,
            },
            {
                "step": 2,
                "time": 103.0,
                "reward": 0.5,
                "reward_std": 0.2,
                "entropy": 0.4,
                "step_time": 2.0,
            },
            {
                "step": 3,
                "time": 110.0,
                "reward": 0.75,
                "reward_std": 0.3,
                "entropy": 0.3,
                "step_time": 2.0,
            },
        ],
    )
    flagged = verdict(0.25, flags=("degenerate:stub",))
    results: tuple[Result, ...] = (WRONG, UNTYPED, RIGHT, STUCK, RIGHT, flagged)
    lines(
        run / "completions.jsonl",
        [training_record(1 + n // 2, result) for n, result in enumerate(results)],
    )
    before: Results = {
        "a": (RIGHT, RIGHT),
        "b": (RIGHT, WRONG),
        "c": (WRONG, UNTYPED),
        "d": (UNTYPED, STUCK),
    }
    after: Results = {
        "a": (RIGHT, RIGHT),
        "b": (RIGHT, RIGHT),
        "c": (RIGHT, WRONG),
        "d": (RIGHT, RIGHT),
    }
    evaluation(run, "before", before, completion="let f x = x - 1")
    evaluation(run, "after", after)
    return run


def comparison_page(before: Path, after: Path, out: Path) -> Path:
    """Write the page of a comparison as `gradus compare --html` does."""
    write_page(out, [before, after], comparisons)
    return out


def hostile_run(run: Path) -> Path:
    """Every text that a run folder can hold is an attack."""
    run.mkdir(parents=True)
    (run / "config.resolved.json").write_text(
        json.dumps({**CONFIG, "seed": XSS, "model": {"name": XSS}})
    )
    bad = verdict(
        0.25,
        components={XSS: 0.25},
        flags=(XSS,),
        diagnostics=(Diagnostic(stage=Stage.TYPES, message=XSS),),
        rubric=XSS,
        grader=XSS,
        toolchain=XSS,
    )
    fault: Faulted = build_faulted("x", FaultKind.INTERNAL, XSS, retryable=False)
    lines(run / "metrics.jsonl", [{"step": 1, "reward": 0.25, f"gradus/component/{XSS}": 0.25}])
    lines(run / "completions.jsonl", [training_record(1, bad, XSS), training_record(1, fault, XSS)])
    for name in ("before", "after"):
        results: Results = {XSS: (bad,), "huge": (bad,), "stuck": (fault,)}
        evaluation(
            run,
            name,
            results,
            completion=XSS + "\u202e\x1b[31m\ufeff" + "x" * 300_000,
            tasks=XSS,
            model=XSS,
        )
    return run


def rich_run(run: Path, steps: int = 60) -> Path:
    """What a real run looks like, made up: for pictures and the browser."""
    draw = random.Random(1)
    run.mkdir(parents=True)
    (run / "config.resolved.json").write_text(
        json.dumps({**CONFIG, "grpo": {**CONFIG["grpo"], "max_steps": steps}})
    )
    metrics, records = [], []
    for step in range(1, steps + 1):
        level = 0.9 - 0.5 * math.exp(-step / 15)
        results = [_drawn(draw, level) for _ in range(32)]
        rewards = [result.reward for result in results]
        mean = sum(rewards) / len(rewards)
        metrics.append(
            {
                "step": step,
                "time": 100.0 + step,
                "reward": mean,
                "reward_std": math.sqrt(
                    sum((reward - mean) ** 2 for reward in rewards) / len(rewards)
                ),
                "entropy": 0.5 * math.exp(-step / 20) + 0.05,
                "frac_reward_zero_std": min(1.0, step / 80),
                "completions/mean_length": 13 + draw.random(),
                "grad_norm": 1 + draw.random(),
                "gradus/passed": level,
                "step_time": 1.0,
                "time/generate_s": 0.3 + draw.random() / 20,
                "time/grade_s": 0.2,
                "time/update_s": 0.5,
            }
        )
        records += [training_record(step, result) for result in results]
    lines(run / "metrics.jsonl", metrics)
    lines(run / "completions.jsonl", records)
    for name, level in (("before", 0.4), ("step-20", 0.7), ("step-40", 0.8), ("after", 0.95)):
        _rich_evaluation(run, name, level, draw)
    return run


def _rich_evaluation(run: Path, name: str, level: float, draw: random.Random) -> None:
    records: list[Record] = []
    figures = []
    modes: tuple[tuple[Mode, int], ...] = (("sampled", 4), ("greedy", 1))
    for mode, samples in modes:
        found = [
            record_of(
                _drawn(draw, level),
                mode=mode,
                task_id=f"{kind}-{n}",
                kind=kind,
                sample=sample,
                prompt=f"(* {kind} {n} *)\n",
                completion=f"let f l = List.{draw.choice(('map', 'filter'))} (fun x -> x + {n}) l",
            )
            for kind in ("map_add", "keep_above", "cons_reversed")
            for n in range(1, 11)
            for sample in range(samples)
        ]
        figures.append(
            compute_measurement(
                found,
                mode=mode,
                temperature=float(mode == "sampled"),
                samples=samples,
                description=OCAML,
            )
        )
        records += found
    _write(run, name, records, tuple(figures), created=f"2026-01-01T00:00:0{len(name) % 10}+00:00")


def _drawn(draw: random.Random, level: float) -> Graded:
    return RIGHT if draw.random() < level else draw.choice((WRONG, UNTYPED))


# ------------------------------------------------------------------- runs at the edges of a page


def failing_run(run: Path) -> Path:
    """A run of 40 steps in which nothing passes: all answers stop at the type check."""
    run.mkdir(parents=True)
    (run / "config.resolved.json").write_text(json.dumps(CONFIG))
    lines(run / "metrics.jsonl", [{"step": n, "reward": 0.0} for n in range(1, 41)])
    lines(run / "completions.jsonl", [training_record(n, UNTYPED) for n in range(1, 41)])
    evaluation(run, "before", {"a": [UNTYPED] * 2, "b": [UNTYPED] * 2})
    return run


def story_run(run: Path) -> Path:
    """A run on stories, of which none passes while the mean reward rises from 0.2 to 0.5."""
    run.mkdir(parents=True)
    config = CONFIG | {"data": {"dataset": "demo:story"}, "reward": {"grader": "story"}}
    (run / "config.resolved.json").write_text(json.dumps(config))
    lines(run / "metrics.jsonl", [{"step": n, "reward": n / 10} for n in range(1, 6)])
    for name, reward in (("before", 0.2), ("after", 0.5)):
        given = {f"sprint-{n}": _score_sprint(n, reward) for n in range(12)}
        evaluation(
            run,
            name,
            given,
            grader="story",
            grader_description=describe_offline("story"),
            graders=("story@7",),
            rubrics=("story/weighted@1",),
            toolchains=(),
            tasks="demo:story/held-out",
        )
    return run


def _score_sprint(number: int, reward: float) -> list[Graded]:
    """Return the verdicts of a sprint's two completions, near this reward."""
    return [
        verdict(
            round(reward + 0.01 * (number % 5) + 0.002 * sample, 3),
            stage=Stage.SCORE,
            rubric="story/weighted@1",
            grader="story@7",
            toolchain="",
            components={"coverage": reward},
            tests=None,
            flags=("story:too_long",) if number == 0 else (),
        )
        for sample in range(2)
    ]


def empty_run(run: Path) -> Path:
    """A run that wrote its settings and nothing else."""
    run.mkdir(parents=True)
    (run / "config.resolved.json").write_text(json.dumps(CONFIG))
    return run


def huge_run(run: Path) -> Path:
    """A run of 20,000 steps with long names and numbers, and completions that stop everywhere."""
    run.mkdir(parents=True)
    config = CONFIG | {"model": {"name": "organization/" + "a-model-with-a-long-name-" * 4}}
    (run / "config.resolved.json").write_text(json.dumps(config))
    draw = random.Random(7)
    metrics = [
        {"step": n, "reward": draw.random(), "loss": 1e9 * draw.random(), "step_time": 4e4}
        for n in range(1, 20_001)
    ]
    lines(run / "metrics.jsonl", metrics)
    results = [RIGHT, WRONG, UNTYPED, STUCK, verdict(0.0, stage=Stage.EXTRACT)]
    records = [training_record(n, results[n % 5]) for n in range(1, 2001)]
    lines(run / "completions.jsonl", records)
    tasks = {f"{'task-with-a-long-name-' * 3}{n}": [results[n % 5]] * 2 for n in range(300)}
    evaluation(run, "before", tasks)
    evaluation(run, "after", tasks)
    return run
