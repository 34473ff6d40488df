"""`--dry-run` of a stage without a grader: its data and its options. Trains nothing and writes nothing."""

from __future__ import annotations

from pathlib import Path

from trainer.config import RunConfig
from trainer.stages.rows import load_rows, repeated
from trainer.stages.settings import PretrainStage, RowStage, StageConfig


def data_found(config: RunConfig) -> str:
    """What there is to learn from. Raises Misuse naming file and line."""
    if isinstance(config, PretrainStage):
        from trainer.stages.tokens import describe

        phases = ", ".join(f"{phase.steps} steps of {phase.length}" for phase in config.data.curriculum)
        return f"{describe(config.data)}; {phases}"
    assert isinstance(config, RowStage)
    rows = load_rows(config)
    again = repeated(rows.train)
    return f"{len(rows.train)} rows to train on, {len(rows.held_out)} held out" + (
        f"; {again} say the same as an earlier one" if again else ""
    )


def options_found(config: RunConfig) -> str:
    """How many samples an update sees. Raises Misuse for options that TRL refuses."""
    from trainer.device import choose_device
    from trainer.stages.making import arguments, stage_options
    from trainer.stages.run import measures, module_of

    assert isinstance(config, StageConfig)
    notes: list[str] = []
    options = stage_options(config, choose_device(config.model), notes.append, measures=measures(config))
    made = arguments(module_of(config).CONFIG_CLASS, config, options, Path("."))
    samples = made.train_batch_size * made.gradient_accumulation_steps
    return "; ".join([f"{samples} samples for each update", *notes])
