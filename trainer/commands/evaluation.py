"""Commands that measure models: `gradus eval` and its three sisters, `sample`, `compare`, `replay`, `pairs`.

Each prints what a person reads, and last, on a line of its own, the path of the file that a program reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradus.console import Config, Quiet, Slots
from gradus.errors import Misuse

if TYPE_CHECKING:
    from trainer.evaluate.judging import Judge
    from trainer.evaluate.preparing import AskSettings

Endpoint = Annotated[str | None, typer.Option(help="A server that speaks OpenAI's protocol: http://host:8000/v1")]
Model = Annotated[str | None, typer.Option(help="Folder or name; with --endpoint the server's name for it")]
Like = Annotated[Path | None, typer.Option(help="Folder of a run: ask with its prompts, judge by its rubric")]
Samples = Annotated[int, typer.Option(min=1, max=1000, help="Completions per task")]
Temperature = Annotated[float, typer.Option(min=0.0, max=10.0, help="0 is greedy")]
MaxNewTokens = Annotated[int, typer.Option(min=1)]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N tasks")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Set aside what is there and start anew")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a rarer setting, again and again: seed, top_p, stop, body, chat, system, template, api_key_env, "
        "concurrency, timeout_s, attempts, batch_size; for a grader here config, slots (docs/evaluation.md)",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder to write to [default: runs/eval/MODEL-FILE]")]
Seed = Annotated[int, typer.Option(min=0)]
GradedAt = Annotated[
    str | None, typer.Option("--url", help="Grade on the Gradus service at this URL, not on this machine")
]
What = Annotated[list[str] | None, typer.Argument(metavar="[MODEL] FILE", show_default=False)]

# Options of earlier versions, parsed for one release in place of --set.
OldText = Annotated[str | None, typer.Option(hidden=True)]
OldInt = Annotated[int | None, typer.Option(hidden=True)]
OldFloat = Annotated[float | None, typer.Option(hidden=True)]
OldPath = Annotated[Path | None, typer.Option(hidden=True)]
OldTexts = Annotated[list[str] | None, typer.Option(hidden=True)]
OldChat = Annotated[bool | None, typer.Option("--chat/--text", hidden=True)]


def evaluate(
    what: Annotated[list[str] | None, typer.Argument(metavar="[MODEL] TASKS", show_default=False)] = None,
    out: Out = None,
    model: Model = None,
    endpoint: Endpoint = None,
    grader: Annotated[str, typer.Option(help="Which grader judges")] = "ocaml",
    rubric: Annotated[str | None, typer.Option(help="[default: the run's, else the grader's]")] = None,
    url: GradedAt = None,
    like: Like = None,
    turns: Annotated[
        int, typer.Option(min=1, max=32, help="Ask again, with what the grader said, until it passes: so often in all")
    ] = 1,
    samples: Samples = 1,
    temperature: Temperature = 1.0,
    greedy: Annotated[bool, typer.Option(help="Also one completion per task without sampling")] = True,
    max_new_tokens: MaxNewTokens = 512,
    limit: Limit = None,
    fresh: Fresh = False,
    set_: Set = None,
    seed: OldInt = None,
    top_p: OldFloat = None,
    stop: OldTexts = None,
    body: OldText = None,
    chat: OldChat = None,
    system: OldText = None,
    template: OldText = None,
    api_key_env: OldText = None,
    concurrency: OldInt = None,
    timeout_s: OldFloat = None,
    attempts: OldInt = None,
    batch_size: OldInt = None,
    config: OldPath = None,
    slots: OldInt = None,
    perplexity: OldPath = None,
    calls: OldPath = None,
    declines: OldPath = None,
    window: OldInt = None,
) -> None:
    """Ask a model for completions of tasks, grade them, and write figures with confidence intervals and a report.

    The same command goes on where it was stopped. Exit status 3 when anything was not written or not graded.

    \b
    gradus eval runs/my/final configs/tasks/ocaml.jsonl --samples 4
    gradus eval configs/tasks/rust.jsonl --grader rust --endpoint http://localhost:8000/v1 --model Qwen/Qwen2.5-7B
    """
    old: dict[str, Any] = {"seed": seed, "top_p": top_p, "stop": stop or None, "body": _fields(body), "chat": chat}
    old |= {"system": system}
    old |= {"template": template, "api_key_env": api_key_env, "concurrency": concurrency, "timeout_s": timeout_s}
    old |= {"attempts": attempts, "batch_size": batch_size, "config": config, "slots": slots}
    if instead := [
        name for name, data in (("perplexity", perplexity), ("calls", calls), ("declines", declines)) if data
    ]:
        if len(instead) > 1:
            raise Misuse(f"give one of {', '.join(f'--{name}' for name in instead)}: each is an evaluation of its own")
        if perplexity is not None and endpoint is not None:
            raise Misuse(
                "--perplexity needs a local model: OpenAI's protocol has no prompt log-probabilities. "
                "Pass MODEL in place of --endpoint"
            )
        if perplexity is not None:
            if len(what or []) + (model is not None) != 1:
                raise Misuse("--perplexity takes one model: gradus eval-perplexity MODEL FILE")
            return eval_perplexity(model or (what or [""])[0], perplexity, out, window)
        ask = eval_tools if calls is not None else eval_refusals
        given = [*(what or []), str(calls or declines)]
        if len(what or []) + (model is not None) > 1 or (not what and model is None and endpoint is None):
            new = "eval-tools" if calls is not None else "eval-refusals"
            raise Misuse(
                f"--{instead[0]} takes one model: gradus {new} MODEL FILE, or gradus {new} FILE --endpoint URL"
            )
        settings = _settings(set_, old)
        raise typer.Exit(
            _ungraded(
                ask.__name__,
                given,
                out,
                settings,
                model,
                endpoint,
                like,
                temperature,
                max_new_tokens,
                limit,
                fresh,
                samples=samples,
                turns=turns,
            )
        )
    named, tasks = _model_and_file(what, model, endpoint, "TASKS")
    settings = _settings(set_, old)
    asked = settings.asked(
        named,
        endpoint,
        like=like,
        samples=samples,
        temperature=temperature,
        greedy=greedy,
        max_new_tokens=max_new_tokens,
        turns=turns,
        limit=limit,
        fresh=fresh,
    )
    from trainer.evaluate.command import main
    from trainer.evaluate.preparing import folder_name

    folder = out or Path("runs/eval") / folder_name(named or "endpoint", tasks)
    raise typer.Exit(main(asked, tasks, grader, _judge(grader, url, settings.config, settings.slots), folder, rubric))


def eval_perplexity(
    model: Annotated[str, typer.Argument(help="Folder, or a name on the hub")],
    file: Annotated[Path, typer.Argument(help="A .txt file, or rows of text, messages, or prompt and completion")],
    out: Out = None,
    window: Annotated[
        int | None, typer.Option(help="Tokens that the model sees at once [default: at most 2048]")
    ] = None,
) -> None:
    """Measure how well a model here foresees a text: perplexity with its interval, and bits per byte.

    \b
    gradus eval-perplexity runs/my/final book.txt
    """
    from trainer.evaluate.perplexity import main
    from trainer.evaluate.preparing import folder_name

    raise typer.Exit(main(model, file, out or Path("runs/eval") / folder_name(model, file), window))


def eval_tools(
    what: What = None,
    out: Out = None,
    model: Model = None,
    endpoint: Endpoint = None,
    temperature: Temperature = 1.0,
    max_new_tokens: MaxNewTokens = 512,
    limit: Limit = None,
    fresh: Fresh = False,
    set_: Set = None,
) -> None:
    """Measure calls of tools, by held-out trajectories of `gradus tasks trajectories`: well formed, and the one due.

    The same command goes on where it was stopped. Exit status 3 when any turn was not written.

    \b
    gradus eval-tools runs/my/final trajectories.jsonl --temperature 0
    """
    settings = _settings(set_)
    raise typer.Exit(
        _ungraded("eval_tools", what, out, settings, model, endpoint, None, temperature, max_new_tokens, limit, fresh)
    )


def eval_refusals(
    what: What = None,
    out: Out = None,
    model: Model = None,
    endpoint: Endpoint = None,
    like: Like = None,
    temperature: Temperature = 1.0,
    max_new_tokens: MaxNewTokens = 512,
    limit: Limit = None,
    fresh: Fresh = False,
    set_: Set = None,
) -> None:
    """Measure whether a model declines what cannot be done, and nothing else.

    The same command goes on where it was stopped. Exit status 3 when any answer was not written.

    \b
    gradus eval-refusals runs/my/final configs/tasks/declines.jsonl
    """
    settings = _settings(set_)
    raise typer.Exit(
        _ungraded(
            "eval_refusals", what, out, settings, model, endpoint, like, temperature, max_new_tokens, limit, fresh
        )
    )


def sample(
    what: Annotated[list[str] | None, typer.Argument(metavar="[MODEL] PROMPTS", show_default=False)] = None,
    out: Annotated[Path, typer.Option(help="File to write to")] = Path("completions.jsonl"),
    model: Model = None,
    endpoint: Endpoint = None,
    like: Like = None,
    samples: Samples = 1,
    temperature: Temperature = 1.0,
    max_new_tokens: MaxNewTokens = 512,
    limit: Limit = None,
    fresh: Fresh = False,
    set_: Set = None,
    seed: OldInt = None,
    top_p: OldFloat = None,
    stop: OldTexts = None,
    body: OldText = None,
    chat: OldChat = None,
    system: OldText = None,
    template: OldText = None,
    api_key_env: OldText = None,
    concurrency: OldInt = None,
    timeout_s: OldFloat = None,
    attempts: OldInt = None,
    batch_size: OldInt = None,
) -> None:
    """Write completions of prompts to a file of JSON lines; rows need `prompt` or `messages`, and may have `id`.

    A run that was stopped goes on when the same command is given again. Exit status 3 when some were not written.

    \b
    gradus sample prompts.jsonl --endpoint http://localhost:8000/v1 --samples 8 --out completions.jsonl
    """
    old: dict[str, Any] = {"seed": seed, "top_p": top_p, "stop": stop or None, "body": _fields(body), "chat": chat}
    old |= {"system": system}
    old |= {"template": template, "api_key_env": api_key_env, "concurrency": concurrency, "timeout_s": timeout_s}
    old |= {"attempts": attempts, "batch_size": batch_size}
    named, prompts = _model_and_file(what, model, endpoint, "PROMPTS")
    asked = _settings(set_, old).asked(
        named,
        endpoint,
        like=like,
        samples=samples,
        temperature=temperature,
        greedy=temperature == 0,
        max_new_tokens=max_new_tokens,
        limit=limit,
        fresh=fresh,
    )
    from trainer.evaluate.ungraded import main

    raise typer.Exit(main(asked, str(prompts), out))


def compare(
    before: Annotated[Path, typer.Argument(help="Folder of an evaluation, or its JSON")],
    after: Annotated[Path, typer.Argument(help="Another one of the same tasks")],
    mode: Annotated[str | None, typer.Option(help="sampled or greedy [default: the first that both have]")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with both sides of every change")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write everything for programs")] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also where tasks, grader or rubric differ")] = False,
    seed: Seed = 0,
) -> None:
    """Compare two evaluations of the same tasks, task by task, with a paired test and confidence intervals.

    Refuses, with exit status 2, what was measured on other tasks, by another revision of the grader or another rubric.
    """
    from trainer.evaluate.comparison import main

    raise typer.Exit(main(before, after, mode, html, as_json, anyway=anyway, seed=seed))


def replay(
    run: Annotated[Path, typer.Argument(help="Folder of a run or of an evaluation")],
    grader: Annotated[str | None, typer.Option(help="Which grader judges [default: the folder's]")] = None,
    url: GradedAt = None,
    config: Config = None,
    slots: Slots = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="File to write to [default: replay.json there]")
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
    chat: Annotated[bool | None, typer.Option("--chat/--text", help="Form of the rows [default: as was asked]")] = None,
) -> None:
    """Make preference pairs for DPO from graded completions: of each prompt the best against the worst.

    Faults are never used. Exit status 1 when there is not a single pair.
    """
    from trainer.pairs import Choice, Form, main

    form: Form = "as asked" if chat is None else "chat" if chat else "text"
    raise typer.Exit(main(graded, out, Choice(min_margin, max_per_task, passed_vs_failed, form)))


# ------------------------------------------------------------------------------------------------------ what they share


def _model_and_file(
    given: Sequence[str] | None, model: str | None, endpoint: str | None, what: str
) -> tuple[str | None, Path]:
    """`[MODEL] FILE` and --model, one of which names the model; with an endpoint neither need."""
    words = given or []
    named = words[0] if len(words) == 2 else model
    if len(words) not in (1, 2) or (len(words) == 2 and model is not None) or (named is None and endpoint is None):
        raise Misuse(f"give MODEL and {what}, or --model and {what}, or --endpoint and {what}")
    return named, Path(words[-1])


def _settings(given: Sequence[str] | None, old: Mapping[str, Any] | None = None) -> AskSettings:
    from trainer.evaluate.preparing import AskSettings

    return AskSettings.of(given or (), old or {})


def _fields(body: str | None) -> dict[str, Any] | None:
    try:
        value = json.loads(body) if body else None
    except (ValueError, RecursionError) as error:
        raise Misuse(f"--body: is not JSON: {error}") from None
    if value is not None and not isinstance(value, dict):
        raise Misuse('--body: is no JSON object such as {"top_k": 20}')
    return value


def _ungraded(
    name: str,
    what: Sequence[str] | None,
    out: Path | None,
    settings: AskSettings,
    model: str | None,
    endpoint: str | None,
    like: Path | None,
    temperature: float,
    max_new_tokens: int,
    limit: int | None,
    fresh: bool,
    **options: Any,
) -> int:
    """A measurement without a grader: `eval_tools` or `eval_refusals`."""
    from trainer.evaluate import calling, declining
    from trainer.evaluate.preparing import folder_name

    named, data = _model_and_file(what, model, endpoint, "FILE")
    asked = settings.asked(
        named,
        endpoint,
        like=like,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        limit=limit,
        fresh=fresh,
        **options,
    )
    folder = out or Path("runs/eval") / folder_name(named or "endpoint", data)
    return calling.main(asked, data, folder) if name == "eval_tools" else declining.main(asked, data, folder)


def _judge(grader: str, url: str | None, config: Path | None, slots: int | None) -> Judge:
    """The service at `url`, or this machine."""
    from gradus.client import RewardClient
    from trainer.evaluate.judging import LocalJudge, ServiceJudge

    if url is not None:
        return ServiceJudge(RewardClient(url, api_key=os.environ.get("GRADUS_API_KEY")), grader)
    return LocalJudge(grader, config, slots)
