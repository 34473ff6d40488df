"""Commands that train and measure models. Modules of a command are imported when it runs."""

from __future__ import annotations

import typer

from trainer.commands import evaluation, training
from trainer.commands.training import gate, pipeline_app

# commands that are called as their functions are
TRAINING = (training.merge, training.model, training.launch, training.push)
EVALUATION = (
    *(
        evaluation.eval_perplexity,
        evaluation.eval_tools,
        evaluation.eval_refusals,
    ),
    *(evaluation.sample, evaluation.chat, evaluation.compare, evaluation.replay, evaluation.pairs),
    *(training.report, gate),
)


def register(app: typer.Typer) -> None:
    rest_for_trl = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=rest_for_trl, rich_help_panel="Train")(training.train)
    app.command("eval", rich_help_panel="Evaluate")(evaluation.evaluate)
    for panel, commands in (("Train", TRAINING), ("Evaluate", EVALUATION)):
        for command in commands:
            app.command(rich_help_panel=panel)(command)
    app.add_typer(pipeline_app, name="pipeline", rich_help_panel="Train")
