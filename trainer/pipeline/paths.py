"""Whether a gate's metric is one that its stage's command writes, told from the forms of result files. Reads no file.

So that a misspelt metric is found before the first training and not after the last. What a training or a program of
one's own leaves is not known in advance, and is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from gradus.descriptions import description_of
from gradus.tasks import TASKS
from trainer.evaluate.calling import Calls
from trainer.evaluate.comparison import Comparison
from trainer.evaluate.declining import Declines
from trainer.evaluate.outcome import Evaluation
from trainer.evaluate.perplexity import Perplexity
from trainer.pipeline.gates import Gate
from trainer.pipeline.metrics import PATH, STEP
from trainer.pipeline.stages import REFERENCE, CompareStage, EvalStage, GateStage, Stage


class _Nowhere(Exception):
    """A path leads nowhere; the message says why."""


def mistakes_in(gates: GateStage, stages: Mapping[str, Stage]) -> Iterator[str]:
    """What is wrong with the metrics of gates, one line each; `stages` are those of the pipeline's file."""
    for gate in gates.gates:
        for file, path in _asked(gate):
            reference = REFERENCE.fullmatch(file)
            stage = stages.get(reference[1]) if reference and reference[2] == "results" else None
            form = _form_of(stage) if stage is not None else None
            if stage is None or form is None:
                continue
            try:
                end = _end_of(form, path)
                _refuse_unasked(stage, path)
                if path == gate.metric:
                    _refuse_unusable(gate, end)
            except _Nowhere as why:
                yield f"{gate.name}: {path}: {why}"


def _asked(gate: Gate) -> Iterator[tuple[str, str]]:
    """(file, path) of everything that a gate reads."""
    for path in (gate.metric, gate.p_value, gate.interval):
        if path is not None:
            yield gate.of, path
    if gate.against is not None:
        yield gate.against, gate.metric


def _form_of(stage: Stage) -> type[BaseModel] | None:
    if isinstance(stage, CompareStage):
        return Comparison
    if not isinstance(stage, EvalStage):
        return None
    if stage.perplexity is not None:
        return Perplexity
    return Calls if stage.calls is not None else Declines if stage.declines is not None else Evaluation


# ----------------------------------------------------------------------------------------------------------- the way


def _end_of(form: Any, path: str) -> Any:
    """The type of what stands at a path."""
    if not PATH.fullmatch(path):
        raise _Nowhere("is no path such as measurements[mode=greedy].mean_reward")
    for step in STEP.finditer(path):
        form = _inside(_present(form), step)
    return _present(form)


def _present(form: Any) -> Any:
    """The type without None: a figure that is missing fails its gate later, by name."""
    if get_origin(form) in (Union, UnionType):
        return next(one for one in get_args(form) if one is not NoneType)
    return form


def _inside(form: Any, step: re.Match[str]) -> Any:
    origin, inner = get_origin(form), get_args(form)
    if step["key"] is not None and isinstance(form, type) and issubclass(form, BaseModel):
        known = {field.alias or name: field.annotation for name, field in form.model_fields.items()}
        if step["key"] in known:
            return known[step["key"]]
        raise _Nowhere(f"there is no {step['key']}; there are {', '.join(known)}")
    if step["key"] is not None and origin is dict:
        if inner[0] is int and not step["key"].isdigit():
            raise _Nowhere(f"{step['key']} is no number")
        return inner[1]
    if step["key"] is None and origin in (tuple, list):
        _refuse_unknown_name(inner[0], step)
        return inner[0]
    raise _Nowhere(f"there is no {step[0]}")


def _refuse_unknown_name(item: Any, step: re.Match[str]) -> None:
    fields = item.model_fields if isinstance(item, type) and issubclass(item, BaseModel) else {}
    if step["name"] is not None and step["name"] not in fields:
        raise _Nowhere(f"there is no {step[0]}")


# ----------------------------------------------------------------------------------------------- what a stage asks for


def _refuse_unasked(stage: Stage, path: str) -> None:
    """Raises for figures of an evaluation that its options do not make it write."""
    if not isinstance(stage, EvalStage) or stage.tasks is None:
        return
    keys = [step["key"] for step in STEP.finditer(path)]
    turns, samples = _count(stage, "turns"), _count(stage, "samples")
    after = dict(zip(keys, keys[1:], strict=False))
    if "turns" in keys and turns < 2:
        raise _Nowhere("answers are asked for once: give the stage options of turns")
    if int(after.get("green_by") or 1) > turns:
        raise _Nowhere(f"answers are asked for {turns} times")
    if int(after.get("pass_at") or 1) > max(1, samples):
        raise _Nowhere(f"there are {samples} samples of each task")
    known = [*description_of(stage.grader).rates] if stage.grader in TASKS else []
    if "rates" in after and known and after["rates"] not in known:
        raise _Nowhere(f"the grader {stage.grader} has no rate {after['rates']}; it has {', '.join(known)}")


def _count(stage: EvalStage, option: str) -> int:
    """What is no number is refused by the command itself."""
    value = stage.options.get(option, 1)
    return value if isinstance(value, int) else 1


def _refuse_unusable(gate: Gate, end: Any) -> None:
    """Raises where no number with what the gate needs stands at the end."""
    fields = end.model_fields if isinstance(end, type) and issubclass(end, BaseModel) else None
    if end not in (int, float) and (fields is None or "value" not in fields):
        raise _Nowhere("no number stands there")
    has_ends = (fields is not None and "low" in fields) or gate.interval is not None
    if gate.bound == "confidence" and gate.p_value is None and not has_ends:
        raise _Nowhere("has no interval: say bound: value")
