"""Commands that measure models: `gradus eval`, `sample`, `compare`, `replay`, `pairs`.

Each prints what a person reads, and last, on a line of its own, the path of the file that a program reads.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradus.cli.application import Config, Quiet, Slots, app, load_grader, say
from gradus.errors import Misuse

if TYPE_CHECKING:
    from gradus.contract import Faulted, Graded, GraderInfo
    from trainer.evaluate.endpoint import Server
    from trainer.evaluate.judging import Judge
    from trainer.evaluate.preparing import Asked

Endpoint = Annotated[str | None, typer.Option(help="A server that speaks OpenAI's protocol: http://host:8000/v1")]
Model = Annotated[str | None, typer.Option(help="Folder or name; with --endpoint the server's name for it")]
ApiKeyEnv = Annotated[str, typer.Option(help="Environment variable that holds the endpoint's key, if it wants one")]
Chat = Annotated[
    bool | None,
    typer.Option("--chat/--text", help="Ask with messages, or one text [default: as trained; endpoint: chat]"),
]
System = Annotated[str | None, typer.Option(help="System message, with --chat")]
Template = Annotated[str | None, typer.Option(help="What the model reads, with {prompt} in it")]
Like = Annotated[Path | None, typer.Option(help="Folder of a run: ask with its prompts, judge by its rubric")]
Samples = Annotated[int, typer.Option(min=1, max=1000, help="Completions per task")]
Temperature = Annotated[float, typer.Option(min=0.0, max=10.0, help="0 is greedy")]
TopP = Annotated[float, typer.Option(help="Over 0, up to 1")]
MaxNewTokens = Annotated[int, typer.Option(min=1)]
Seed = Annotated[int, typer.Option(min=0)]
Turns = Annotated[
    int, typer.Option(min=1, max=32, help="Ask again, with what the grader said, until it passes: so often in all")
]
Stop = Annotated[list[str] | None, typer.Option(help="Text that ends a completion; may be given again")]
Body = Annotated[
    str | None, typer.Option(help='Further fields of requests as JSON: {"top_k": 20}; null leaves one out')
]
Concurrency = Annotated[int, typer.Option(min=1, max=1024, help="Requests to the endpoint at one time")]
TimeoutS = Annotated[float, typer.Option(help="Seconds for one completion of the endpoint")]
Attempts = Annotated[int, typer.Option(min=1, max=100, help="How often one completion is asked for")]
Batch = Annotated[int, typer.Option(min=1, help="Completions written at once by a model here")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N tasks")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Set aside what is there and start anew")]
GradedAt = Annotated[str | None, typer.Option("--url", help="The grading service there [default: grade here]")]


@app.command("eval")
def evaluate(
    what: Annotated[list[str] | None, typer.Argument(metavar="[MODEL] TASKS", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to [default: runs/eval/MODEL-TASKS]")] = None,
    model: Model = None,
    endpoint: Endpoint = None,
    api_key_env: ApiKeyEnv = "GRADUS_ENDPOINT_API_KEY",
    grader: Annotated[str, typer.Option(help="Which grader judges")] = "ocaml",
    rubric: Annotated[str | None, typer.Option(help="[default: the run's, else the grader's]")] = None,
    url: GradedAt = None,
    config: Config = None,
    slots: Slots = None,
    turns: Turns = 1,
    samples: Samples = 1,
    temperature: Temperature = 1.0,
    greedy: Annotated[bool, typer.Option(help="Also one completion per task without sampling")] = True,
    top_p: TopP = 1.0,
    max_new_tokens: MaxNewTokens = 512,
    seed: Seed = 0,
    stop: Stop = None,
    chat: Chat = None,
    system: System = None,
    template: Template = None,
    like: Like = None,
    body: Body = None,
    concurrency: Concurrency = 16,
    timeout_s: TimeoutS = 300.0,
    attempts: Attempts = 5,
    batch_size: Batch = 64,
    limit: Limit = None,
    fresh: Fresh = False,
    perplexity: Annotated[
        Path | None, typer.Option(help="In place of TASKS: perplexity of a text or JSONL file")
    ] = None,
    calls: Annotated[
        Path | None,
        typer.Option(help="In place of TASKS: calls of tools, by trajectories of gradus tasks trajectories"),
    ] = None,
    declines: Annotated[
        Path | None,
        typer.Option(help="In place of TASKS: asks of which some cannot be done, configs/tasks/declines.jsonl"),
    ] = None,
    window: Annotated[int | None, typer.Option(help="With --perplexity: tokens that the model sees at once")] = None,
) -> None:
    """Ask a model for completions of tasks, grade them, and write figures with confidence intervals and a report.

    The same command goes on where it was stopped. Exit status 3 when anything was not written or not graded.

    \b
    gradus eval runs/my/final configs/tasks/ocaml.jsonl --samples 4
    gradus eval configs/tasks/rust.jsonl --grader rust --endpoint http://localhost:8000/v1 --model Qwen/Qwen2.5-7B
    gradus eval runs/my/final --perplexity book.txt
    """
    raise typer.Exit(_evaluated(locals()))


@app.command()
def sample(
    what: Annotated[list[str] | None, typer.Argument(metavar="[MODEL] PROMPTS", show_default=False)] = None,
    out: Annotated[Path, typer.Option(help="File to write to")] = Path("completions.jsonl"),
    model: Model = None,
    endpoint: Endpoint = None,
    api_key_env: ApiKeyEnv = "GRADUS_ENDPOINT_API_KEY",
    samples: Samples = 1,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    max_new_tokens: MaxNewTokens = 512,
    seed: Seed = 0,
    stop: Stop = None,
    chat: Chat = None,
    system: System = None,
    template: Template = None,
    like: Like = None,
    body: Body = None,
    concurrency: Concurrency = 16,
    timeout_s: TimeoutS = 300.0,
    attempts: Attempts = 5,
    batch_size: Batch = 64,
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Write completions of prompts to a file of JSON lines; rows need `prompt` or `messages`, and may have `id`.

    A run that was stopped goes on when the same command is given again. Exit status 3 when some were not written.

    \b
    gradus sample prompts.jsonl --endpoint http://localhost:8000/v1 --samples 8 --out completions.jsonl
    """
    named, prompts = _model_and_file([*(what or [])], model, endpoint, "PROMPTS")
    asked = _asked(**_options_of(locals()), model=named, greedy=temperature == 0)
    from trainer.evaluate.sampling import main

    raise typer.Exit(main(asked, str(prompts), out))


@app.command()
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
    from trainer.evaluate.compare import main

    raise typer.Exit(main(before, after, mode, html, as_json, anyway=anyway, seed=seed))


@app.command()
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


@app.command()
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
    given: Sequence[str], model: str | None, endpoint: str | None, what: str
) -> tuple[str | None, Path]:
    """`[MODEL] FILE` and --model, one of which names the model; with an endpoint neither need."""
    if len(given) not in (1, 2) or (len(given) == 2 and model is not None):
        raise Misuse(f"give MODEL and {what}, or --model and {what}, or --endpoint and {what}")
    named = given[0] if len(given) == 2 else model
    if named is None and endpoint is None:
        raise Misuse(f"give MODEL and {what}, or --model and {what}, or --endpoint and {what}")
    return named, Path(given[-1])


def _evaluated(given: Mapping[str, Any]) -> int:
    """`gradus eval` with its options by name."""
    what, model, endpoint, out = given["what"] or [], given["model"], given["endpoint"], given["out"]
    if len(instead := [name for name in _IN_PLACE_OF_TASKS if given[name] is not None]) > 1:
        raise Misuse(f"give one of {', '.join(f'--{name}' for name in instead)}: each is an evaluation of its own")
    if given["perplexity"] is not None:
        return _perplexity(what, model, endpoint, given["perplexity"], out, given["window"])
    if instead:
        return _ungraded(given, what, instead[0])
    named, tasks = _model_and_file(what, model, endpoint, "TASKS")
    asked = _asked(**_options_of(given), model=named)
    from trainer.evaluate.command import main
    from trainer.evaluate.preparing import folder_name

    folder = out or Path("runs/eval") / folder_name(named or "endpoint", tasks)
    judge = _judge(given["grader"], given["url"], given["config"], given["slots"])
    return main(asked, tasks, given["grader"], judge, folder, given["rubric"])


_IN_PLACE_OF_TASKS = ("perplexity", "calls", "declines")
_OF_ASKED = ("samples", "temperature", "greedy", "top_p", "max_new_tokens", "seed", "system", "template", "like")
_OF_ASKING = ("turns", "batch_size", "limit", "fresh", "stop", "chat", "body", "endpoint", "api_key_env")
_OF_SERVER = ("concurrency", "timeout_s", "attempts")


def _options_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of a command's options those that say how a model is asked."""
    return {name: given[name] for name in (*_OF_ASKED, *_OF_ASKING, *_OF_SERVER) if name in given}


def _asked(
    *,
    endpoint: str | None,
    api_key_env: str,
    chat: bool | None,
    body: str | None,
    stop: list[str] | None,
    **options: Any,
) -> Asked:
    from trainer.evaluate.preparing import Asked

    asking = {name: options.pop(name) for name in _OF_SERVER}
    asked_as = None if chat is None else "chat" if chat else "text"
    server = _server(endpoint, api_key_env, asking)
    return Asked(server=server, asked_as=asked_as, body=_fields(body), stop=tuple(stop or ()), **options)


def _server(endpoint: str | None, api_key_env: str, asking: Mapping[str, Any]) -> Server | None:
    from trainer.evaluate.endpoint import Server

    return Server(endpoint, os.environ.get(api_key_env) or None, **asking) if endpoint is not None else None


def _fields(body: str | None) -> dict[str, Any]:
    try:
        value = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise Misuse(f"--body: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Misuse('--body: is no JSON object such as {"top_k": 20}')
    return value


def _perplexity(
    given: Sequence[str],
    model: str | None,
    endpoint: str | None,
    data: Path,
    out: Path | None,
    window: int | None,
) -> int:
    from trainer.evaluate.perplexity import main
    from trainer.evaluate.preparing import folder_name

    if endpoint is not None:
        raise Misuse("--perplexity needs the model here: endpoints do not tell how likely a text is")
    if len(given) + (model is not None) != 1:
        raise Misuse("--perplexity takes one model: gradus eval MODEL --perplexity FILE")
    named = model or given[0]
    return main(named, data, out or Path("runs/eval") / folder_name(named, data), window)


def _ungraded(given: Mapping[str, Any], what: Sequence[str], option: str) -> int:
    """What is measured without a grader: `calls` of tools, or what a model `declines`."""
    from trainer.evaluate import calling, declining
    from trainer.evaluate.preparing import folder_name

    data, model, endpoint = given[option], given["model"], given["endpoint"]
    if len(what) + (model is not None) > 1 or (not what and model is None and endpoint is None):
        raise Misuse(
            f"--{option} takes one model: gradus eval MODEL --{option} FILE, or --endpoint URL --{option} FILE"
        )
    named = model or (what[0] if what else None)
    asked = _asked(**_options_of(given), model=named)
    folder = given["out"] or Path("runs/eval") / folder_name(named or "endpoint", data)
    return calling.main(asked, data, folder) if option == "calls" else declining.main(asked, data, folder)


def _judge(grader: str, url: str | None, config: Path | None, slots: int | None) -> Judge:
    """The service at `url`, or this machine."""
    if url is not None:
        from gradus.client import RewardClient
        from trainer.evaluate.judging import ServiceJudge

        return ServiceJudge(RewardClient(url, api_key=os.environ.get("GRADUS_API_KEY")), grader)
    return _Here(grader, config, slots)


class _Here:
    """A grader on this machine, started when it is first wanted."""

    def __init__(self, grader: str, config: Path | None, slots: int | None) -> None:
        self._name = grader
        self._config = config
        self._slots = slots
        self._grader: Any = None
        self._lock = threading.Lock()
        """Calls of one slot must not overlap, so calls with all slots take turns."""

    async def info(self) -> GraderInfo:
        if self._grader is None:
            say(f"gradus: proving that the {self._name} grader judges rightly here")
            grader = load_grader(self._name, self._config)
            grader.prove()
            self._grader = grader
        found: GraderInfo = self._grader.info()
        return found

    async def grade(self, submissions: Sequence[Mapping[str, Any]], rubric: str | None) -> list[Graded | Faulted]:
        import asyncio

        return await asyncio.to_thread(self._graded, submissions, rubric)

    def _graded(self, submissions: Sequence[Mapping[str, Any]], rubric: str | None) -> list[Graded | Faulted]:
        from pydantic import ValidationError

        from gradus.contract import misuse_of, submission_class
        from services.offline import grade_in_order

        info = self._grader.info()
        if rubric is not None and rubric not in info.rubrics:
            raise Misuse(f"grader {self._name!r} has no rubric {rubric!r}; it has: {', '.join(info.rubrics)}")
        try:
            asked = [submission_class(info.name).model_validate(dict(one)) for one in submissions]
        except ValidationError as error:
            raise misuse_of(error) from None
        with self._lock:
            return list(grade_in_order(self._grader, asked, rubric or info.rubrics[0], self._slots))
