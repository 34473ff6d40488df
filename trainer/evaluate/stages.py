"""The order of a grader's stages and the rules of its rates, both as the grader's description has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradus.contract import Stage
from gradus.errors import Misuse
from trainer.evaluate.causes import PASSED

Test = Callable[[Mapping[str, Any]], bool]


def stage_order(stages: Sequence[str]) -> list[str]:
    """The names of a description's stages, first to last, then every other stage of the contract in its order."""
    return [str(stage) for stage in dict.fromkeys((*stages, *Stage))]


def rank_of(stage: str, stages: Sequence[str] = ()) -> int:
    """Later stages have higher ranks; `passed` has the highest, and what is no stage -1."""
    order = [*stage_order(stages), PASSED]
    return order.index(stage) if stage in order else -1


def rate_test(rule: str, stages: Sequence[str]) -> Test:
    """Whether a verdict counts for a rate, by the rule that `GraderDescription.rates` has for it.

    Raises Misuse for a rule that is none, or names another grader's stage.
    """
    kind, _, stage = rule.partition(":")
    if rule == "passed":
        return is_passed
    if kind not in ("past", "clean") or stage not in stages:
        raise Misuse(f"{rule!r} is no rule of a rate: passed, past:STAGE or clean:STAGE of {', '.join(stages)}")
    place = list(stages).index(stage)
    if kind == "past":
        later = stages[place + 1 :]
        return lambda record: record.get("stage") in later
    reached = stages[place:]
    return lambda record: (
        record.get("stage") in reached
        and not any(isinstance(one, Mapping) and one.get("stage") == stage for one in record.get("diagnostics") or ())
    )


def is_passed(record: Mapping[str, Any]) -> bool:
    return record.get("passed") is True


def grader_of(records: Sequence[Mapping[str, Any]]) -> str:
    """Name of the grader that judged the first record; empty where there is none."""
    return str(records[0].get("grader") or "").partition("@")[0] if records else ""
