"""Whether a gate's metric is one that its stage's command writes, told from the forms of result
files. Reads no file.

So that a misspelt metric is found before the first training and not after the last. What a training
or a program of one's own leaves is not known in advance, and is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from gradus.descriptions import description_of
from gradus.tasks import TASKS
from trainer.evaluate.comparison import Comparison
from trainer.evaluate.perplexity import Perplexity
from trainer.evaluate.refusal_eval import Declines
from trainer.evaluate.results import Evaluation
from trainer.evaluate.tool_call_eval import Calls
from trainer.pipeline.gates import Gate
from trainer.pipeline.metrics import STEP, NoFigure, at
from trainer.pipeline.stages import REFERENCE, CompareStage, EvalStage, GateStage, Stage

FORMS = {
    None: Evaluation,
    "perplexity": Perplexity,
    "calls": Calls,
    "declines": Declines,
}
"""What an evaluation leaves, by what it measures without a grader."""


def mistakes_in(gates: GateStage, stages: Mapping[str, Stage]) -> Iterator[str]:
    """What is wrong with the metrics of gates, one line each; `stages` are those of the pipeline's
    file."""
    for gate in gates.gates:
        asked = [(gate.of, path) for path in (gate.metric, gate.p_value) if path is not None]
        if gate.against is not None:
            asked.append((gate.against, gate.metric))
        for file, path in asked:
            reference = REFERENCE.fullmatch(file)
            stage = stages.get(reference[1]) if reference and reference[2] == "results" else None
            if not isinstance(stage, EvalStage | CompareStage):
                continue
            try:
                end = at(
                    Comparison if isinstance(stage, CompareStage) else FORMS[stage.ungraded],
                    path,
                    _inside,
                )
                if isinstance(stage, EvalStage) and stage.tasks is not None:
                    _refuse_unasked(stage, path)
                if path == gate.metric:
                    _refuse_unusable(gate, end)
            except NoFigure as why:
                yield f"{gate.name}: {path}: {why}"


def _inside(form: Any, step: re.Match[str]) -> Any:
    """The type of what stands a step further, without None: a figure that is missing fails its gate
    later, by name."""
    origin, inner, fields, key = get_origin(form), get_args(form), _fields_of(form), step["key"]
    known = {field.alias or name: field.annotation for name, field in fields.items()}
    if key is not None and known:
        if key not in known:
            raise NoFigure(f"there is no {key}; there are {', '.join(known)}")
        found = known[key]
    elif key is not None and origin is dict:
        if inner[0] is int and not key.isdigit():
            raise NoFigure(f"{key} is no number")
        found = inner[1]
    elif origin in (tuple, list) and key is None and step["name"] in (None, *_fields_of(inner[0])):
        found = inner[0]
    else:
        raise NoFigure(f"there is no {step[0]}")
    is_union = get_origin(found) in (Union, UnionType)
    return next(one for one in get_args(found) if one is not NoneType) if is_union else found


def _fields_of(form: Any) -> Mapping[str, Any]:
    """The fields of a model; none for other types."""
    return form.model_fields if isinstance(form, type) and issubclass(form, BaseModel) else {}


def _refuse_unasked(stage: EvalStage, path: str) -> None:
    """Raises for figures of an evaluation that its options do not make it write."""
    keys = [step["key"] for step in STEP.finditer(path)]
    # An option that is no number is refused by the command itself.
    asked = {name: value for name, value in stage.options.items() if isinstance(value, int)}
    turns, samples = asked.get("turns", 1), asked.get("samples", 1)
    after = dict(zip(keys, keys[1:], strict=False))
    if "turns" in keys and turns < 2:
        raise NoFigure("answers are asked for once: give the stage options of turns")
    if int(after.get("green_by") or 1) > turns:
        raise NoFigure(f"answers are asked for {turns} times")
    if int(after.get("pass_at") or 1) > max(1, samples):
        raise NoFigure(f"there are {samples} samples of each task")
    known = [*description_of(stage.grader).rates] if stage.grader in TASKS else []
    if "rates" in after and known and after["rates"] not in known:
        raise NoFigure(
            f"the grader {stage.grader} has no rate {after['rates']}; it has {', '.join(known)}"
        )


def _refuse_unusable(gate: Gate, end: Any) -> None:
    """Raises where no number with what the gate needs stands at the end."""
    fields = _fields_of(end)
    if end not in (int, float) and "value" not in fields:
        raise NoFigure("no number stands there")
    if gate.bound == "confidence" and gate.p_value is None and "low" not in fields:
        raise NoFigure("has no interval: say bound: value")
