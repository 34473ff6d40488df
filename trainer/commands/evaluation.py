"""Commands that measure models: `gradus eval` and its four sisters, `sample`, `compare`, `replay`, `pairs`.

Each prints what a person reads, and last, on a line of its own, the path of the file that a program reads.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gradus.console import Config, Quiet, Slots
from gradus.errors import Misuse

if TYPE_CHECKING:
    from trainer.evaluate.grader_backend import Judge
    from trainer.evaluate.setup import SamplingOptions

Like = Annotated[
    Path | None, typer.Option("--prompts-from", help="Folder of a run whose prompts and rubric are used", metavar="RUN")
]
Samples = Annotated[int, typer.Option(min=1, max=1000, help="Completions per task")]
Out = Annotated[Path | None, typer.Option(help="Folder to write to", show_default="runs/eval/MODEL-FILE")]
Seed = Annotated[int, typer.Option(min=0)]
GradedAt = Annotated[
    str | None, typer.Option("--url", help="Grade on the Gradus service at this URL, not on this machine")
]
What = Annotated[list[str] | None, typer.Argument(metavar="[MODEL] FILE", show_default=False)]


@dataclass(frozen=True, slots=True)
class Asking:
    """Options of every command that asks a model."""

    model: Annotated[str | None, typer.Option(help="Folder or name; with --endpoint the server's name for it")] = None
    endpoint: Annotated[
        str | None, typer.Option(help="A server that speaks OpenAI's protocol: http://host:8000/v1")
    ] = None
    temperature: Annotated[float, typer.Option(min=0.0, max=10.0, help="0 is greedy")] = 1.0
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 512
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N tasks")] = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Set aside what is there and start anew")] = False
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a rarer setting, again and again: seed, top_p, stop, body, chat, system, template, "
            "api_key_env, concurrency, timeout_s, attempts, batch_size; for a grader here config, slots "
            "(docs/evaluation.md)",
        ),
    ] = None

    def of(self, words: Sequence[str] | None, file: str, **more: Any) -> tuple[SamplingOptions, Path]:
        """How the model is asked, and the file: `[MODEL] FILE` or --model name the model, an endpoint needs neither."""
        given = list(words or ())
        named = given[0] if len(given) == 2 else self.model
        twice = len(given) == 2 and self.model is not None
        if len(given) not in (1, 2) or twice or (named is None and self.endpoint is None):
            if len(given) == 1:
                what = f"{given[0]} is taken for {file}, MODEL is missing"
            elif given:
                what = "MODEL is given twice" if twice else f"{given[2:]} is too much"
            else:
                what = f"MODEL and {file} are missing"
            raise Misuse(f"{what}: give MODEL and {file}, or --model and {file}, or --endpoint and {file}")
        return self.asked(named, **more), Path(given[-1])

    def asked(self, model: str | None, **more: Any) -> SamplingOptions:
        """How this model, or the one of the endpoint, is asked."""
        from trainer.evaluate.setup import SamplingOptions

        same = {name: getattr(self, name) for name in ("temperature", "max_new_tokens", "limit", "fresh")}
        return SamplingOptions.of(self.settings or (), model, self.endpoint, **same, **more)


def asks_a_model(command: Callable[..., None]) -> Callable[..., None]:
    """The command for typer: the fields of `Asking` are options in place of its last parameter `asking`."""
    *own, _ = inspect.signature(command, eval_str=True).parameters.values()
    hints = get_type_hints(Asking, include_extras=True)
    shared = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(Asking)
    ]

    def run(**given: Any) -> None:
        command(**{one.name: given[one.name] for one in own}, asking=Asking(**{name: given[name] for name in hints}))

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    return run


@asks_a_model
def evaluate(
    what: Annotated[list[str] | None, typer.Argument(metavar="[MODEL] TASKS", show_default=False)] = None,
    out: Out = None,
    grader: Annotated[str, typer.Option(help="Which grader judges")] = "ocaml",
    rubric: Annotated[str | None, typer.Option(show_default="the run's, else the grader's")] = None,
    url: GradedAt = None,
    like: Like = None,
    turns: Annotated[
        int, typer.Option(min=1, max=32, help="Ask again, with what the grader said, until it passes: so often in all")
    ] = 1,
    samples: Samples = 1,
    greedy: Annotated[bool, typer.Option(help="Also one completion per task without sampling")] = True,
    *,
    asking: Asking,
) -> None:
    """Ask a model for completions of tasks, grade them, and write figures with confidence intervals and a report.

    The same command resumes where it was stopped. Exit status 3 when anything was not written or not graded.

    \b
    gradus eval runs/my/final configs/tasks/ocaml.jsonl --samples 4
    gradus eval configs/tasks/rust.jsonl --grader rust --endpoint http://localhost:8000/v1 --model Qwen/Qwen2.5-7B
    """
    from trainer.evaluate.command import main

    asked, tasks = asking.of(what, "TASKS", like=like, samples=samples, greedy=greedy, turns=turns)
    judge = _judge(grader, url, asked.config, asked.slots)
    raise typer.Exit(main(asked, tasks, grader, judge, _folder(out, asked.model, tasks), rubric))


def eval_perplexity(
    model: Annotated[str, typer.Argument(help="Folder, or a name on the hub")],
    file: Annotated[Path, typer.Argument(help="A .txt file, or rows of text, messages, or prompt and completion")],
    out: Out = None,
    window: Annotated[
        int | None, typer.Option(help="Tokens that the model sees at once", show_default="at most 2048")
    ] = None,
) -> None:
    """Measure how well a model here foresees a text: perplexity with its interval, and bits per byte.

    \b
    gradus eval-perplexity runs/my/final book.txt
    """
    from trainer.evaluate.perplexity import main

    raise typer.Exit(main(model, file, _folder(out, model, file), window))


def eval_choices(
    model: Annotated[str, typer.Argument(help="Folder, or a name on the hub")],
    file: Annotated[Path, typer.Argument(help="Rows of question, choices and answer, perhaps subject")],
    out: Out = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N questions")] = None,
) -> None:
    """Measure a model here on multiple-choice questions, as in MMLU: accuracy with its interval.

    \b
    gradus eval-choices runs/my/final questions.jsonl
    """
    from trainer.evaluate.choice_eval import main

    raise typer.Exit(main(model, file, _folder(out, model, file), limit))


@asks_a_model
def eval_tools(what: What = None, out: Out = None, *, asking: Asking) -> None:
    """Measure calls of tools, by held-out trajectories of `gradus tasks trajectories`: well formed, and the one due.

    The same command resumes where it was stopped. Exit status 3 when any turn was not written.

    \b
    gradus eval-tools runs/my/final trajectories.jsonl --temperature 0
    """
    from trainer.evaluate.tool_call_eval import main

    asked, file = asking.of(what, "FILE")
    raise typer.Exit(main(asked, file, _folder(out, asked.model, file)))


@asks_a_model
def eval_refusals(what: What = None, out: Out = None, like: Like = None, *, asking: Asking) -> None:
    """Measure whether a model declines what cannot be done, and nothing else.

    The same command resumes where it was stopped. Exit status 3 when any answer was not written.

    \b
    gradus eval-refusals runs/my/final configs/tasks/declines.jsonl
    """
    from trainer.evaluate.refusal_eval import main

    asked, file = asking.of(what, "FILE", like=like)
    raise typer.Exit(main(asked, file, _folder(out, asked.model, file)))


@asks_a_model
def sample(
    what: Annotated[list[str] | None, typer.Argument(metavar="[MODEL] PROMPTS", show_default=False)] = None,
    out: Annotated[Path, typer.Option(help="File to write to")] = Path("completions.jsonl"),
    like: Like = None,
    samples: Samples = 1,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Also measure distinct-1 and -2, length, repetition and perplexity")
    ] = False,
    *,
    asking: Asking,
) -> None:
    """Write completions of prompts to a file of JSON lines; rows need `prompt` or `messages`, and may have `id`.

    A run that was stopped resumes when the same command is given again. Exit status 3 when some were not written.

    \b
    gradus sample prompts.jsonl --endpoint http://localhost:8000/v1 --samples 8 --out completions.jsonl
    """
    from trainer.evaluate.single_sample_runs import main

    greedy = asking.temperature == 0
    asked, prompts = asking.of(what, "PROMPTS", like=like, samples=samples, greedy=greedy)
    raise typer.Exit(main(asked, prompts, out, metrics=metrics))


@asks_a_model
def chat(
    what: Annotated[str | None, typer.Argument(metavar="[MODEL]", show_default=False)] = None,
    tasks: Annotated[Path | None, typer.Option(help="File of tasks: one of them is the first prompt")] = None,
    task: Annotated[str | None, typer.Option(help="Its id", show_default="the first task of the file")] = None,
    grader: Annotated[str, typer.Option(help="Which grader judges, with --tasks")] = "ocaml",
    rubric: Annotated[str | None, typer.Option(show_default="the run's, else the grader's")] = None,
    url: GradedAt = None,
    like: Like = None,
    *,
    asking: Asking,
) -> None:
    """Talk to a model on the terminal; with --tasks, the grader's verdict follows each answer. Ctrl-D ends it.

    \b
    gradus chat runs/my/final
    gradus chat runs/my/final --tasks configs/tasks/ocaml.jsonl --grader ocaml
    """
    from trainer.evaluate.chat import main

    if what is not None and asking.model is not None:
        raise Misuse("MODEL is given twice: give MODEL or --model")
    if what is None and asking.model is None and asking.endpoint is None:
        raise Misuse("MODEL is missing: give MODEL, --model or --endpoint")
    asked = asking.asked(what or asking.model, like=like, greedy=asking.temperature == 0)
    raise typer.Exit(main(asked, tasks, task, _judge(grader, url, asked.config, asked.slots), rubric))


def compare(
    before: Annotated[Path, typer.Argument(help="Folder of an evaluation, or its JSON")],
    after: Annotated[Path, typer.Argument(help="Another one of the same tasks")],
    mode: Annotated[str | None, typer.Option(help="sampled or greedy", show_default="the first that both have")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with both sides of every change")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write everything for programs")] = None,
    anyway: Annotated[bool, typer.Option("--allow-mismatch", help="Also where tasks, grader or rubric differ")] = False,
    seed: Seed = 0,
) -> None:
    """Compare two evaluations of the same tasks, task by task, with a paired test and confidence intervals.

    Refuses, with exit status 2, what was measured on other tasks, by another revision of the grader or another rubric.
    """
    from trainer.evaluate.report import main

    raise typer.Exit(main(before, after, mode, html, as_json, anyway=anyway, seed=seed))


def replay(
    run: Annotated[Path, typer.Argument(help="Folder of a run or of an evaluation")],
    grader: Annotated[str | None, typer.Option(help="Which grader judges", show_default="the folder's")] = None,
    url: GradedAt = None,
    config: Config = None,
    slots: Slots = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="File to write to", show_default="replay.json there")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Grade stored completions again with the grader as it is now, and tell every reward that changed.

    Exit status 0 when none changed, 1 when any did, 3 when some could not be judged.
    """
    from trainer.evaluate.replay import main

    judge_of = lambda name: _judge(name, url, config, slots)  # noqa: E731
    raise typer.Exit(main(run, grader, judge_of, as_json or run / "replay.json", quiet=quiet))


def pairs(
    graded: Annotated[
        list[Path], typer.Argument(help="Folders of evaluations or runs, or files of graded completions")
    ],
    out: Annotated[Path, typer.Option(help="JSONL to write")] = Path("pairs.jsonl"),
    min_margin: Annotated[float, typer.Option(min=0, max=1, help="Rewards must differ by at least this")] = 0.05,
    max_per_task: Annotated[int, typer.Option(min=1, help="Pairs of one prompt, at most")] = 1,
    passed_vs_failed: Annotated[
        bool, typer.Option("--passed-vs-failed", help="Only what passed against what did not")
    ] = False,
    chat: Annotated[
        bool | None, typer.Option("--chat/--text", help="Form of the rows", show_default="as was asked")
    ] = None,
) -> None:
    """Make preference pairs for DPO from graded completions: of each prompt the best against the worst.

    Faults are never used. Exit status 1 when there is not a single pair.
    """
    from trainer.evaluate.pairs import Form, PairingRules, main

    form: Form = "as asked" if chat is None else "chat" if chat else "text"
    raise typer.Exit(main(graded, out, PairingRules(min_margin, max_per_task, passed_vs_failed, form)))


# ------------------------------------------------------------------------------------------------------ what they share


def _folder(out: Path | None, model: str | None, file: Path) -> Path:
    from trainer.evaluate.setup import folder_name

    return out or Path("runs/eval") / folder_name(model or "endpoint", file)


def _judge(grader: str, url: str | None, config: Path | None, slots: int | None) -> Judge:
    """The service at `url`, or this machine."""
    from gradus.client import RewardClient
    from trainer.evaluate.grader_backend import LocalJudge, ServiceJudge

    if url is not None:
        return ServiceJudge(RewardClient(url, api_key=os.environ.get("GRADUS_API_KEY")), grader)
    return LocalJudge(grader, config, slots)
