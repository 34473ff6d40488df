"""Commands that train and measure models. Light: what a command needs is imported when it runs."""

from __future__ import annotations

import typer

from trainer.commands import evaluation, training
from trainer.commands.training import gate, pipeline_app

COMMANDS = (
    *(training.merge, training.model, training.report),
    *(evaluation.eval_perplexity, evaluation.eval_choices, evaluation.eval_tools, evaluation.eval_refusals),
    *(evaluation.sample, evaluation.chat),
    *(evaluation.compare, evaluation.replay, evaluation.pairs, gate),
)
"""Commands that are called as their functions are."""


def register(app: typer.Typer) -> None:
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(training.train)
    app.command("eval")(evaluation.evaluate)
    for command in COMMANDS:
        app.command()(command)
    app.add_typer(pipeline_app, name="pipeline")
