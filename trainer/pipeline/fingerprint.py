"""What a stage was run with, as one hash: its settings and all that it reads. When it changes, the stage runs again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer.pipeline.digests import Digests
from trainer.pipeline.plan import named_files, training_data
from trainer.pipeline.stages import GateStage, Stage, TrainStage, references

Inputs = dict[str, str | None]


def inputs_of(written: Stage, ready: Stage, places: Mapping[tuple[str, str], Path], digests: Digests) -> Inputs:
    """Everything that a stage reads, with its hash; None for what is no file, such as a name on a hub.

    `written` still says `{name.output}`, `ready` has paths in their place.
    """
    found = list(references(written.model_dump()))
    names = [*_named_in(ready), *(str(places[one]) for one in found)]
    # Of a run its records: checkpoints may be a hundred gigabytes, and never change without them.
    runs = {str(places[one]) for one in found if one[1] == "run"}
    return {name: (digests.shallow if name in runs else digests.named)(name) for name in dict.fromkeys(names)}


def _named_in(ready: Stage) -> Iterator[str]:
    yield from named_files(ready)
    if isinstance(ready, TrainStage):
        yield from training_data(ready)
    if isinstance(ready, GateStage):
        yield from (file for gate in ready.gates for file in (gate.of, gate.against) if file is not None)


def fingerprint(written: Stage, inputs: Inputs) -> str:
    """Of what is read only the contents count: files that were moved are no change."""
    return _sha256({"settings": written.model_dump(mode="json"), "inputs": list(inputs.values())})


def fingerprint_of_all(stages: Mapping[str, Stage], inputs: Mapping[str, Inputs]) -> str:
    """Of the settings of all stages together."""
    return _sha256({name: fingerprint(stage, inputs[name]) for name, stage in stages.items()})


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode(errors="surrogateescape")).hexdigest()
