"""Commands that measure models: `gradus eval`, `eval-...`, `sample`, `compare`, `replay`, `pairs`.

Each prints a summary, and on the last line the path of the file for programs.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gradus.console import Config, Slots
from gradus.errors import Misuse
from gradus.system_errors import require_writable, require_writable_file

if TYPE_CHECKING:
    from trainer.evaluate.grader_backend import Judge
    from trainer.evaluate.setup import SamplingOptions

MODEL, SAMPLING, GRADING = "Model", "Sampling", "Grading"
"""Help panels."""
Like = Annotated[
    Path | None,
    typer.Option(
        "--prompts-from",
        help="Use prompts and rubric of this run",
        metavar="RUN",
        rich_help_panel=SAMPLING,
    ),
]
Samples = Annotated[
    int, typer.Option(min=1, max=1000, help="Completions per task", rich_help_panel=SAMPLING)
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder to write to", show_default="runs/eval/MODEL-FILE"),
]
Judged = Annotated[str, typer.Option(help="Grader of the completions", rich_help_panel=GRADING)]
Rubric = Annotated[
    str | None,
    typer.Option(
        help="Rubric, GRADER/NAME@VERSION",
        show_default="the run's, else the grader's",
        rich_help_panel=GRADING,
    ),
]
GradedAt = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Grade on the Gradus service at this URL instead of on this machine",
        rich_help_panel=GRADING,
    ),
]
MODEL_AND_FILE = "Folder or name of the model, unless an option names it, and a file"
What = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODEL] FILE", help=MODEL_AND_FILE, show_default=False),
]


@dataclass(frozen=True, slots=True)
class SamplingArguments:
    """Options of every command that samples a model."""

    model: Annotated[
        str | None,
        typer.Option(
            help="Folder or name of the model; with --endpoint its name there",
            rich_help_panel=MODEL,
        ),
    ] = None
    endpoint: Annotated[
        str | None,
        typer.Option(help="OpenAI-compatible server, http://host:8000/v1", rich_help_panel=MODEL),
    ] = None
    temperature: Annotated[
        float,
        typer.Option(min=0.0, max=10.0, help="Temperature; 0 is greedy", rich_help_panel=SAMPLING),
    ] = 1.0
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Most tokens of a completion", rich_help_panel=SAMPLING)
    ] = 512
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only the first N tasks", rich_help_panel=SAMPLING)
    ] = None
    fresh: Annotated[
        bool, typer.Option("--no-resume", help="Move earlier results aside and start again")
    ] = False
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help=(
                "Set one of seed, top_p, body, chat, system, template,"
                " concurrency, timeout_s, attempts, batch_size, config, slots (docs/evaluation.md);"
                " may be repeated"
            ),
            rich_help_panel=SAMPLING,
        ),
    ] = None

    def parse(
        self, words: Sequence[str] | None, file: str, **extras: Any
    ) -> tuple[SamplingOptions, Path]:
        """Return how the model is asked, and the file: `[MODEL] FILE` or --model name the model, an
        endpoint needs neither."""
        arguments = list(words or ())
        named = arguments[0] if len(arguments) == 2 else self.model
        twice = len(arguments) == 2 and self.model is not None
        if len(arguments) not in (1, 2) or twice or (named is None and self.endpoint is None):
            if len(arguments) == 1:
                problem = f"{arguments[0]} is taken for {file}, MODEL is missing"
            elif arguments:
                problem = "MODEL is given twice" if twice else f"{arguments[2:]} is too much"
            else:
                problem = f"MODEL and {file} are missing"
            raise Misuse(
                f"{problem}: give MODEL and {file}, or --model and {file}, or --endpoint and {file}"
            )
        return self.build_options(named, **extras), Path(arguments[-1])

    def build_options(self, model: str | None, **extras: Any) -> SamplingOptions:
        """Return how this model, or the one of the endpoint, is asked."""
        from trainer.evaluate.setup import SamplingOptions

        same = {
            name: getattr(self, name)
            for name in ("temperature", "max_new_tokens", "limit", "fresh")
        }
        return SamplingOptions.parse(self.settings or (), model, self.endpoint, **same, **extras)


def add_sampling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command for typer: the fields of `SamplingArguments` are options in place of its
    last parameter `sampling`."""
    *command_parameters, _ = inspect.signature(command, eval_str=True).parameters.values()
    hints = get_type_hints(SamplingArguments, include_extras=True)
    shared = []
    for option in fields(SamplingArguments):
        shared.append(
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=hints[option.name],
            )
        )

    def run(**values: Any) -> None:
        command(
            **{parameter.name: values[parameter.name] for parameter in command_parameters},
            sampling=SamplingArguments(**{name: values[name] for name in hints}),
        )

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*command_parameters, *shared])  # type: ignore[attr-defined]
    return run


@add_sampling_options
def evaluate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] TASKS", help=MODEL_AND_FILE, show_default=False),
    ] = None,
    out: Out = None,
    grader: Judged = "ocaml",
    rubric: Rubric = None,
    url: GradedAt = None,
    like: Like = None,
    turns: Annotated[
        int,
        typer.Option(
            "--max-turns",
            min=1,
            max=32,
            help="Most turns per task; after a failure the grader's feedback is sent back",
            rich_help_panel=SAMPLING,
        ),
    ] = 1,
    samples: Samples = 1,
    greedy: Annotated[
        bool, typer.Option(help="Add one greedy completion per task", rich_help_panel=SAMPLING)
    ] = True,
    *,
    sampling: SamplingArguments,
) -> None:
    """Sample completions of tasks, grade them, and write metrics with confidence intervals and a
    report.

    The same command resumes a stopped evaluation. Exit status 3 when a completion was not generated
    or not graded.

    \b
    gradus eval runs/my/final configs/tasks/ocaml.jsonl --samples 4
    gradus eval configs/tasks/rust.jsonl --grader rust --endpoint http://localhost:8000/v1 --model Qwen/Qwen2.5-7B
    """  # noqa: E501
    from trainer.evaluate.command import main

    options, tasks = sampling.parse(
        arguments, "TASKS", like=like, samples=samples, greedy=greedy, turns=turns
    )
    judge = _build_judge(grader, url, options.config, options.slots)
    raise typer.Exit(
        main(options, tasks, grader, judge, _resolve_folder(out, options.model, tasks), rubric)
    )


def eval_perplexity(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder, or a name on the hub")],
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help=".txt file, or rows with text"),
    ],
    out: Out = None,
) -> None:
    """Measure a local model on a text: perplexity with its interval, and bits per byte.

    \b
    gradus eval-perplexity runs/my/final book.txt
    """
    from trainer.evaluate.perplexity import main

    raise typer.Exit(main(model, file, _resolve_folder(out, model, file)))


@add_sampling_options
def eval_tools(arguments: What = None, out: Out = None, *, sampling: SamplingArguments) -> None:
    """Measure tool calls on held-out trajectories of `gradus tasks trajectories`: format and
    selection.

    The same command resumes a stopped evaluation. Exit status 3 when a turn was not generated.

    \b
    gradus eval-tools runs/my/final trajectories.jsonl --temperature 0
    """
    from trainer.evaluate.tool_call_eval import main

    options, file = sampling.parse(arguments, "FILE")
    raise typer.Exit(main(options, file, _resolve_folder(out, options.model, file)))


@add_sampling_options
def eval_refusals(
    arguments: What = None, out: Out = None, like: Like = None, *, sampling: SamplingArguments
) -> None:
    """Measure refusals of impossible tasks, and over-refusals of possible ones.

    The same command resumes a stopped evaluation. Exit status 3 when an answer was not generated.

    \b
    gradus eval-refusals runs/my/final configs/tasks/declines.jsonl
    """
    from trainer.evaluate.refusal_eval import main

    options, file = sampling.parse(arguments, "FILE", like=like)
    raise typer.Exit(main(options, file, _resolve_folder(out, options.model, file)))


@add_sampling_options
def sample(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] PROMPTS", help=MODEL_AND_FILE, show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write to")] = Path("completions.jsonl"),
    like: Like = None,
    samples: Samples = 1,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Measure distinct-1 and -2, and length too"),
    ] = False,
    *,
    sampling: SamplingArguments,
) -> None:
    """Sample completions of prompts into a JSONL file. Rows need `prompt` or `messages`, and may
    have `id`.

    The same command resumes a stopped run. Exit status 3 when a completion was not generated.

    \b
    gradus sample prompts.jsonl --endpoint http://localhost:8000/v1 --samples 8 --out completions.jsonl
    """  # noqa: E501
    from trainer.evaluate.single_sample_runs import main

    greedy = sampling.temperature == 0
    options, prompts = sampling.parse(
        arguments, "PROMPTS", like=like, samples=samples, greedy=greedy
    )
    require_writable_file(out)
    raise typer.Exit(main(options, prompts, out, metrics=metrics))


@add_sampling_options
def chat(
    name: Annotated[str | None, typer.Argument(metavar="[MODEL]", show_default=False)] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="File of tasks; one of them is the first prompt")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Id of that task", show_default="the first task of the file")
    ] = None,
    grader: Judged = "ocaml",
    rubric: Rubric = None,
    url: GradedAt = None,
    like: Like = None,
    *,
    sampling: SamplingArguments,
) -> None:
    """Chat with a model on the terminal. With --tasks the grader's verdict follows each answer.
    Ctrl-D ends it.

    \b
    gradus chat runs/my/final
    gradus chat runs/my/final --tasks configs/tasks/ocaml.jsonl --grader ocaml
    """
    from trainer.evaluate.chat import main

    if name is not None and sampling.model is not None:
        raise Misuse("MODEL is given twice: give MODEL or --model")
    if name is None and sampling.model is None and sampling.endpoint is None:
        raise Misuse("MODEL is missing: give MODEL, --model or --endpoint")
    options = sampling.build_options(
        name or sampling.model, like=like, greedy=sampling.temperature == 0
    )
    raise typer.Exit(
        main(options, tasks, task, _build_judge(grader, url, options.config, options.slots), rubric)
    )


def compare(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="Folder of an evaluation, or its JSON")
    ],
    after: Annotated[
        Path,
        typer.Argument(
            metavar="AFTER", help="Folder or JSON of another evaluation of the same tasks"
        ),
    ],
    mode: Annotated[
        str | None,
        typer.Option(
            help="Mode to compare: sampled or greedy", show_default="the first mode present in both"
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="HTML file to write, with both sides of every change"),
    ] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="JSON file to write")] = None,
    anyway: Annotated[
        bool,
        typer.Option("--allow-mismatch", help="Compare even if tasks, grader or rubric differ"),
    ] = False,
) -> None:
    """Compare two evaluations of the same tasks, task by task, with a paired test and confidence
    intervals.

    Exit status 2 if tasks, revision of the grader or rubric differ.
    """
    from trainer.evaluate.report import main

    for target in filter(None, (html, as_json)):
        require_writable_file(target)
    raise typer.Exit(main(before, after, mode, html, as_json, anyway=anyway))


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run or of an evaluation")],
    url: GradedAt = None,
    config: Config = None,
    slots: Slots = None,
) -> None:
    """Grade stored completions again with the current grader, and print every reward that changed.

    Exit status 0 when no reward changed, 1 when one did, 3 when a completion could not be graded.
    """
    from trainer.evaluate.replay import main

    judge_of = lambda name: _build_judge(name, url, config, slots)  # noqa: E731
    raise typer.Exit(main(run, judge_of))


def pairs(
    graded: Annotated[
        list[Path],
        typer.Argument(
            metavar="GRADED", help="Folders of evaluations or runs, or files of graded completions"
        ),
    ],
    out: Annotated[Path, typer.Option(help="JSONL file to write")] = Path("pairs.jsonl"),
    min_margin: Annotated[
        float, typer.Option(min=0, max=1, help="Smallest difference of rewards")
    ] = 0.05,
    max_per_task: Annotated[int, typer.Option(min=1, help="Most pairs of one prompt")] = 1,
) -> None:
    """Create preference pairs for DPO from graded completions: the best of each prompt against the
    worst.

    Faults are never used. Exit status 1 when there is no pair.
    """
    from trainer.evaluate.pairs import main

    require_writable_file(out)
    raise typer.Exit(main(graded, out, min_margin, max_per_task))


# ---------------------------------------------------------------------- what they share


def _resolve_folder(out: Path | None, model: str | None, file: Path) -> Path:
    from trainer.evaluate.setup import make_folder_name

    folder = out or Path("runs/eval") / make_folder_name(model or "endpoint", file)
    require_writable(folder)
    return folder


def _build_judge(grader: str, url: str | None, config: Path | None, slots: int | None) -> Judge:
    """Return the service at `url`, or this machine."""
    from gradus.client import RewardClient
    from trainer.evaluate.grader_backend import LocalJudge, ServiceJudge

    if url is not None:
        return ServiceJudge(RewardClient(url, api_key=os.environ.get("GRADUS_API_KEY")), grader)
    return LocalJudge(grader, config, slots)
