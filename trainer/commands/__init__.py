"""Commands that train and measure models. Light: what a command needs is imported when it runs."""

from __future__ import annotations

import typer

from trainer.commands.evaluation import (
    compare,
    eval_perplexity,
    eval_refusals,
    eval_tools,
    evaluate,
    pairs,
    replay,
    sample,
)
from trainer.commands.pipeline import gate, pipeline_app
from trainer.commands.training import merge, model, report, train


def register(app: typer.Typer) -> None:
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(train)
    app.command()(merge)
    app.command()(model)
    app.command()(report)
    app.command("eval")(evaluate)
    app.command("eval-perplexity")(eval_perplexity)
    app.command("eval-tools")(eval_tools)
    app.command("eval-refusals")(eval_refusals)
    app.command()(sample)
    app.command()(compare)
    app.command()(replay)
    app.command()(pairs)
    app.command()(gate)
    app.add_typer(pipeline_app, name="pipeline")
