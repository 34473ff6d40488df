"""`gradus dashboard`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradus.console import log_line
from gradus.wings import load_entry_points


def dashboard(
    runs: Annotated[
        Path, typer.Option(help="Folder of runs and evaluations, or one of them")
    ] = Path("runs"),
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one")
    ] = 8080,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that viewers need")
    ] = None,
    api: Annotated[
        str | None, typer.Option(help="Show and change the queues of the Gradus API at this URL")
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File with an API key whose line has role=operator, for --api"),
    ] = None,
) -> None:
    """Serve a live page of runs and evaluations, and their newest values for Prometheus at
    /metrics.

    A public address requires a token, from --token-file or GRADUS_DASHBOARD_TOKEN.

    \b
    gradus dashboard                                        # http://127.0.0.1:8080, everything in runs/
    gradus dashboard --runs /data/runs
    gradus dashboard --host 0.0.0.0 --token-file token.txt
    gradus dashboard --api http://127.0.0.1:8000 --api-key-file operator.key
    """  # noqa: E501
    from services.dashboard.app import serve
    from services.dashboard.auth import (
        OPEN_VARIABLE,
        TOKEN_VARIABLE,
        read_token_file,
        validate_token,
    )
    from services.dashboard.queues import create_queues
    from services.event_loop import run, stop_on_signals
    from services.json_logging import log_json_lines

    queues = create_queues(api, api_key_file)
    token = os.environ.get(TOKEN_VARIABLE) or None
    if token_file is not None:
        token = read_token_file(token_file)
    elif token is not None:
        token = validate_token(token, TOKEN_VARIABLE)
    if not runs.is_dir():
        log_line(f"gradus: {runs} is not there yet; runs are shown as they appear")

    def announce_ready(url: str) -> None:
        log_line(f"gradus: the dashboard is at {url}")
        log_json_lines()

    async def serve_page() -> None:
        with stop_on_signals() as stop:
            await serve(
                runs,
                host,
                port,
                token=token,
                compare=_compare_evaluations,
                queues=queues,
                allow_anonymous=os.environ.get(OPEN_VARIABLE, "").lower() in ("1", "true", "yes"),
                stop=stop,
                on_ready=announce_ready,
            )

    run(serve_page())


def _compare_evaluations(before: Path, after: Path) -> Sequence[dict[str, Any]]:
    """Return the comparisons of two evaluations; none without the wing that computes them or the
    packages that it needs."""
    try:
        comparers = load_entry_points("gradus.comparisons")
    except ImportError as error:
        log_line(f"gradus: evaluations are shown without a comparison: {error}")
        return []
    return comparers[0](before, after) if comparers else []
