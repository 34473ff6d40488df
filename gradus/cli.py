"""The command line: reads arguments, calls one function, turns misuse into exit status 2 and faults into 3.

Imports of services and trainer stand inside the commands, so that `gradus --help` loads neither.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gradus.errors import Fault, Misuse

if TYPE_CHECKING:
    from gradus.contract import Faulted, Graded, GraderName, Submission

T = TypeVar("T")
EXIT_MISUSE = 2
EXIT_FAULT = 3
_OURS = frozenset({"gradus", "services", "trainer"})
_OF_THE_API = frozenset({"fastapi", "starlette", "uvicorn", "redis", "hiredis", "prometheus_client"})

app = typer.Typer(
    name="gradus",
    help="Grade what language models write, in sandboxes, and train them on the grades.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
tasks_app = typer.Typer(help="Check files of tasks.", no_args_is_help=True)
app.add_typer(tasks_app, name="tasks")
keys_app = typer.Typer(help="Make API keys.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")

Grader = Annotated[str, typer.Argument(help="ocaml, rust or story", metavar="GRADER")]
Redis = Annotated[str | None, typer.Option(help="Redis of the queue, redis://host:6379/0", envvar="GRADUS_REDIS_URL")]
Url = Annotated[str | None, typer.Option(help="Use the service there instead of grading here")]
Slots = Annotated[int | None, typer.Option(min=1, max=256, help="Graded at one time [default: cores; story: 64]")]
Config = Annotated[Path | None, typer.Option(help="Grader configuration [default: the shipped one]")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar")]


def main() -> None:
    """The entry point: exit status 0, 2 for misuse, 3 for a fault, 130 for Ctrl-C."""
    try:
        app()
    except Misuse as misuse:
        _say(f"gradus: {misuse}")
        sys.exit(EXIT_MISUSE)
    except Fault as fault:
        _say(f"gradus: {fault.kind} fault: {fault.message}")
        sys.exit(EXIT_FAULT)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in _OURS:
            raise
        extra = "api" if package in _OF_THE_API else "train"
        _say(f"gradus: this needs the package {package}: pip install 'gradus[{extra}]'")
        sys.exit(EXIT_MISUSE)
    except KeyboardInterrupt:
        sys.exit(130)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------------ services


@app.command()
def serve(
    redis: Redis = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0: any free port [default: 8000]")] = None,
    graders: Annotated[
        str | None, typer.Option(help="Without --redis: which to run, with commas between [default: all that start]")
    ] = None,
    slots: Slots = None,
) -> None:
    """Serve the REST API. Alone it is everything in one process; with --redis it is the API only.

    \b
    gradus serve                                   # API, queue and graders here, no Redis
    gradus serve --redis redis://localhost:6379/0  # API only: start graders with `gradus worker`
    """
    from services.loop import run

    ready = lambda url: _say(f"gradus: serving on {url}")  # noqa: E731
    if redis is not None:
        from services.api.serving import serve as serve_api

        run(serve_api(redis, host, port, on_ready=ready))
        return
    from services.embedded import serve_embedded

    loaded = _startable() if graders is None else [_loaded(name) for name in graders.replace(",", " ").split()]
    run(serve_embedded(loaded, host, port, slots=slots, on_ready=ready))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def vllm(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A folder, or a model's name on the hub")],
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8001,
    device: Annotated[str, typer.Option(help="auto, cuda or cpu")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of the weights [default: float32 on a CPU, else the model's]")] = "auto",
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Tokens of prompt and completion")] = None,
    lora_rank: Annotated[int | None, typer.Option(min=1, help="Serve LoRA adapters up to this rank")] = None,
    sync: Annotated[str, typer.Option(help="How it takes new weights: auto, file or nccl")] = "auto",
    exposed: Annotated[bool, typer.Option(help="Others are kept away from its port by something else")] = False,
    start_timeout: Annotated[float, typer.Option(min=1, help="Seconds until it must be healthy")] = 600.0,
) -> None:
    """Serve a model with vLLM for `gradus train` with generation.backend: vllm.

    Starts vLLM's own server with what training needs: log-probabilities of what is sampled, weights and adapters that
    can be replaced, on loopback only. Options that are not listed go to vLLM. Needs vLLM in this environment.

    \b
    gradus vllm Qwen/Qwen2.5-1.5B-Instruct
    gradus vllm runs/x/warm_start --max-model-len 512 --max-num-seqs 64
    """
    from services.generation.serve import Wish, serve

    wish = Wish(
        model=model,
        host=host,
        port=port,
        device=device,
        dtype=dtype,
        max_model_len=max_model_len,
        lora_rank=lora_rank,
        sync=sync,
        exposed=exposed,
        start_s=start_timeout,
        extra=tuple(context.args),
    )
    raise typer.Exit(serve(wish, _say))


@app.command()
def worker(
    grader: Grader,
    redis: Redis = None,
    slots: Slots = None,
    config: Config = None,
    name: Annotated[str | None, typer.Option(help="Name among the workers [default: host and process]")] = None,
    metrics_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Serve /metrics for Prometheus")] = None,
    metrics_host: Annotated[str, typer.Option(help="With --metrics-port: the address to serve on")] = "127.0.0.1",
) -> None:
    """Grade what is queued in Redis. Start any number of these on any number of machines.

    A worker first attacks its own sandbox and refuses to serve if anything gets through.
    """
    import asyncio

    from services.broker.open import open_broker
    from services.graders import usual_slots
    from services.log_lines import json_lines
    from services.tracing import spans
    from services.worker import Worker, stop_on_signals
    from services.worker_metrics import WorkerMetrics

    if redis is None:
        raise Misuse("a worker needs the queue: --redis redis://host:6379/0 (or GRADUS_REDIS_URL)")

    async def run() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        broker = open_broker(redis)
        metrics = WorkerMetrics()
        traced = spans("gradus-worker")
        if metrics_port is not None:
            print(f"metrics on {metrics_host}:{metrics.serve(metrics_port, metrics_host)}", file=sys.stderr)
        try:
            loaded = _loaded(grader, config)
            number = slots or usual_slots(loaded.info().name)
            await Worker(loaded, broker, slots=number, name=name, observer=metrics, spans=traced).run(stop)
        finally:
            await broker.close()
            if traced:
                await asyncio.to_thread(traced.close)

    with json_lines():
        asyncio.run(run())


@keys_app.command("new")
def new_key(
    name: Annotated[str, typer.Argument(help="Whose key it is; stands in the service's log")],
    graders: Annotated[str, typer.Option(help="What it may use, with commas between [default: all]")] = "",
) -> None:
    """Make an API key: its line for the service on standard output, the key itself, shown once, on standard error.

    \b
    gradus keys new trainer --graders ocaml,rust >> keys.txt
    GRADUS_API_KEYS_FILE=keys.txt gradus serve --host 0.0.0.0 --redis redis://...
    GRADUS_API_KEY=gradus_... gradus grade ocaml --url http://... submissions.jsonl
    """
    from services.api.keys import new_key as made

    secret, key = made(name, graders.replace(",", " ").split())
    print(key.line())
    _say(f"gradus: the key of {name}, shown only now: {secret}")


# ------------------------------------------------------------------------------------------------------- grading


@app.command()
def grade(
    grader: Grader,
    submissions: Annotated[str, typer.Argument(help="JSONL, one submission a line; - reads standard input")],
    rubric: Annotated[str | None, typer.Option(help="For example ocaml/strict@1 [default: the grader's]")] = None,
    url: Url = None,
    deadline_s: Annotated[float, typer.Option(min=0.001, max=3600, help="With --url: for the whole file")] = 600.0,
    api_key: Annotated[str | None, typer.Option(envvar="GRADUS_API_KEY", help="With --url")] = None,
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Grade a file: one submission per line in, one result per line out, same order.

    Needs no server and no Redis. Exit status 0 when all were graded, 3 when any was faulted, 2 for misuse.

    \b
    gradus grade ocaml submissions.jsonl > results.jsonl
    echo '{"id":"1","completion":"let f x = x+1","task":{"tests":"assert (f 1 = 2)"}}' | gradus grade ocaml -
    """
    from gradus.contract import grader_named

    name = grader_named(grader)
    asked = _submissions(name, submissions)
    results: Iterable[Graded | Faulted]
    if url is not None:
        results = _graded_there(name, asked, rubric, url, api_key, deadline_s)
    else:
        results = _graded_here(name, asked, rubric, slots, config)
    faults = 0
    for result in _with_progress(results, len(asked), "grading", quiet):
        print(result.model_dump_json(), flush=True)
        faults += result.status == "faulted"
    if faults:
        _say(f"gradus: {faults} of {len(asked)} submissions could not be judged; see their `fault`")
        raise typer.Exit(EXIT_FAULT)


def _submissions(name: GraderName, path: str) -> list[Submission]:
    """The submissions of a file. Raises Misuse naming file and line for the first that cannot be used."""
    from pydantic import ValidationError

    from gradus.contract import SUBMISSIONS, explain
    from gradus.rows import read_rows

    found: list[Submission] = []
    seen: dict[str, str] = {}
    for row in read_rows(path):
        try:
            submission = SUBMISSIONS[name].model_validate(dict(row.checked().values))
        except ValidationError as error:
            raise Misuse(f"{row.where}: {explain(error)}") from None
        if submission.id in seen:
            raise Misuse(f"{row.where}: id: {submission.id!r} occurs twice, first at {seen[submission.id]}")
        seen[submission.id] = row.where
        found.append(submission)
    return found


def _graded_here(
    name: GraderName,
    asked: list[Submission],
    rubric: str | None,
    slots: int | None,
    config: Path | None = None,
) -> Iterator[Graded | Faulted]:
    from services.offline import grade_in_order

    if not asked:
        return iter(())
    loaded = _loaded(name.value, config)
    offered = loaded.info().rubrics
    if rubric is not None and rubric not in offered:
        raise Misuse(f"grader {name.value!r} has no rubric {rubric!r}; it has: {', '.join(offered)}")
    loaded.prove()
    return grade_in_order(loaded, asked, rubric or offered[0], slots)


def _graded_there(
    name: GraderName, asked: list[Submission], rubric: str | None, url: str, api_key: str | None, deadline_s: float
) -> list[Graded | Faulted]:
    import asyncio

    from gradus.client import RewardClient

    async def run() -> list[Graded | Faulted]:
        # Somebody sits in front of this: a service that is not there is told soon, not at the deadline.
        async with RewardClient(url, api_key=api_key, attempts=10) as client:
            return await client.grade(name.value, asked, rubric=rubric, deadline_s=deadline_s)

    return asyncio.run(run())


@app.command()
def attack(
    grader: Grader,
    url: Url = None,
    deadline_s: Annotated[float, typer.Option(min=1, max=3600, help="With --url: for the whole corpus")] = 600.0,
    api_key: Annotated[str | None, typer.Option(envvar="GRADUS_API_KEY", help="With --url")] = None,
    slots: Slots = None,
    quiet: Quiet = False,
) -> None:
    """Run the corpus of hostile answers against a grader: here, or the live service at --url.

    Prints a table; exit status 1 when anything got credit that it did not earn, or broke the grader.
    """
    from gradus.attacks import load_attacks
    from gradus.contract import grader_named

    name = grader_named(grader)
    if name.value == "story":
        raise typer.Exit(_attack_stories(name, url, deadline_s, api_key, slots, quiet))
    corpus = list(load_attacks(name))
    asked: list[Submission] = [one.submission() for one in corpus]
    results: Iterable[Graded | Faulted]
    if url is not None:
        results = _graded_there(name, asked, None, url, api_key, deadline_s)
    else:
        results = _graded_here(name, asked, None, slots)
    through = 0
    for one, result in zip(corpus, _with_progress(results, len(corpus), "attacking", quiet), strict=True):
        problem = one.got_through(result)
        through += problem is not None
        seen = f"{result.stage:8} {result.reward:.2f}" if result.status == "graded" else "fault        "
        print(f"{'held   ' if problem is None else 'THROUGH'} {seen}  {one.name:32} must not {one.must_not}")
        if problem is not None:
            print(f"        got {problem}")
    print(f"{len(corpus) - through} of {len(corpus)} attacks held")
    if through:
        raise typer.Exit(1)


def _attack_stories(
    name: GraderName, url: str | None, deadline_s: float, api_key: str | None, slots: int | None, quiet: bool
) -> int:
    from gradus.story_attacks import load_exceptions, load_sprints, outcomes, submissions_of, verdict_on

    sprints, exceptions = load_sprints(), load_exceptions()
    asked = list(submissions_of(sprints))
    if url is not None:
        results: Iterable[Graded | Faulted] = _graded_there(name, asked, None, url, api_key, deadline_s)
    else:
        results = _graded_here(name, asked, None, slots)
    counts = dict.fromkeys(("held", "known", "THROUGH"), 0)
    wrong = 0
    for one in outcomes(sprints, _with_progress(results, len(asked), "attacking", quiet)):
        word, problem = verdict_on(one, exceptions)
        counts[word] += 1
        wrong += problem is not None
        place = f"{one.sprint.name}: {one.attack.kind}"
        print(f"{word:7} {one.reward:.2f}  {place:60} must earn less than {one.half:.2f}")
        if problem is not None:
            print(f"        {problem}")
    print(f"{counts['held']} of {sum(counts.values())} attacks held, {counts['known']} are known to pay")
    return 1 if wrong else 0


@tasks_app.command("validate")
def validate_tasks(
    file: Annotated[
        str, typer.Argument(help="JSONL, JSON or CSV with id, prompt, tests or references, solution, stub ...")
    ],
    grader: Annotated[str, typer.Option(help="Which grader judges these tasks")] = "ocaml",
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Check that every task can be used to train on.

    Fields and duplicates; tests parse and type-check; the reference answer gets full marks; the stub and an empty
    answer do not. For stories: the references, given as the answer, earn 0.9, a solution 0.5, stub and empty answer
    less; no reference stands in the prompt. Prints one line per problem. Exit status 0 when all are usable, 1 when
    some are not.
    """
    from gradus.contract import grader_named
    from gradus.rows import read_rows
    from services.admission import validate

    name = grader_named(grader)
    rows = list(read_rows(file))
    if not rows:
        raise Misuse(f"{file}: holds no rows")
    loaded = _loaded(name.value, config)
    loaded.prove()
    bad = 0
    for finding in _with_progress(validate(rows, name, loaded, slots), len(rows), "validating", quiet):
        for problem in finding.problems:
            print(f"{finding.where}: {finding.task_id}: {problem}", flush=True)
        for warning in finding.warnings:
            _say(f"{finding.where}: {finding.task_id}: warning: {warning}")
        bad += bool(finding.problems)
    print(f"{len(rows) - bad} of {len(rows)} tasks are usable")
    if bad:
        raise typer.Exit(1)


# ------------------------------------------------------------------------------------------------------ training


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="For example configs/train/demo_ocaml.yaml")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and print the resolved config; train nothing")
    ] = False,
    resume: Annotated[str, typer.Option(help="auto, never, or the path of a checkpoint")] = "auto",
) -> None:
    """Train with GRPO on true rewards. Options after the config override it.

    \b
    gradus train configs/train/demo_ocaml.yaml --dry-run
    gradus train my.yaml --learning_rate 1e-6 --reward.deadline_s 30
    """
    from trainer.train import main as train_main

    raise typer.Exit(train_main(config, list(context.args), dry_run=dry_run, resume=resume))


@app.command("eval")
def evaluate(
    model: Annotated[str, typer.Argument(help="Folder or name of a model")],
    tasks: Annotated[Path, typer.Argument(help="File of tasks, for example configs/tasks/ocaml.jsonl")],
    out: Annotated[Path, typer.Option(help="Folder to write to")] = Path("runs/eval"),
    name: Annotated[str, typer.Option(help="Name of this evaluation in the folder")] = "eval",
    grader: Annotated[str, typer.Option(help="Which grader judges")] = "ocaml",
    url: Annotated[str, typer.Option(help="The grading service")] = "http://127.0.0.1:8000",
    samples: Annotated[int, typer.Option(min=1, max=1000, help="Completions per task")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, max=10.0, help="0 is greedy")] = 1.0,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 512,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N tasks")] = None,
) -> None:
    """Sample a model on tasks, grade the samples, and write rates with confidence intervals."""
    from trainer.evaluate import main as evaluate_main

    status = evaluate_main(
        model,
        tasks,
        out=out,
        samples=samples,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        urls=[url],
        grader=grader,
        name=name,
        limit=limit,
    )
    raise typer.Exit(status)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, for example runs/demo")],
    out: Annotated[Path | None, typer.Option(help="File to write [default: report.html in the folder]")] = None,
) -> None:
    """Write the report of a run: one HTML file that needs no network."""
    from trainer.evaluate.report import write_report

    if not run.is_dir():
        raise Misuse(f"{run}: is no folder of a run")
    target = out or run / "report.html"
    write_report(run, target)
    print(target)


@app.command()
def doctor(
    redis: Redis = None,
    url: Url = None,
) -> None:
    """Look at this machine: toolchains, sandbox, Redis, service, torch; and say what to do about what is missing."""
    from gradus.doctor import examine

    raise typer.Exit(examine(redis=redis, url=url))


# ------------------------------------------------------------------------------------------------------- helpers


def _loaded(name: str, config: Path | None = None) -> Any:
    from gradus.contract import grader_named
    from services.graders import load

    return load(grader_named(name), config=config)


def _startable() -> list[Any]:
    """All graders whose toolchain is here; of the others it is said what they lack. Raises Fault when there is none."""
    from services.graders import GRADERS

    found, lacking = [], []
    for name in GRADERS:
        try:
            found.append(_loaded(name))
        except Fault as fault:
            lacking.append(fault)
            _say(f"gradus: serving without {name.value}: {fault.message}")
    if not found:
        raise lacking[0]
    return found


def _with_progress(items: Iterable[T], total: int, what: str, quiet: bool) -> Iterator[T]:
    """`items`, with a progress bar on standard error when somebody is there to see it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            yield item
            progress.advance(task)
