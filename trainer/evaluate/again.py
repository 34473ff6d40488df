"""Later turns of an evaluation: what did not pass is asked for again, with what the grader said of it.

What a model reads is its own answer and `gradus.feedback`' words, which repair tasks and trajectories have too; hidden
tests are in neither. Turns come one after the other, the answers of one turn all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from gradus.contract import Graded, GraderName
from gradus.descriptions import GraderDescription
from gradus.errors import Misuse
from gradus.feedback import repair_turn, reply
from gradus.validation import explain
from trainer.evaluate.asking import Ask, Plan, Source, seed_of
from trainer.evaluate.collect import OnProgress, gather
from trainer.evaluate.details import is_judged
from trainer.evaluate.judging import Judge
from trainer.evaluate.store import Completions, key_of
from trainer.prompts import Message, Prompt, with_opening
from trainer.rewards import NO_VERDICT, Record, clean


def refuse_turns(description: GraderDescription, turns: int) -> None:
    """Raises Misuse for several turns with a grader whose answers are prose, which has no fences."""
    if turns > 1 and not description.fences:
        raise Misuse(
            f"--turns {turns}: answers of the grader {description.name!r} are no code, which could be repaired"
        )


async def collect_turns(
    source: Source,
    judge: Judge,
    firsts: Sequence[tuple[Ask, Record]],
    plan: Plan,
    store: Completions,
    on_progress: OnProgress = lambda what, done, total: None,
) -> list[Record]:
    """The records of all turns after the first, turn by turn, each in the order of the plan.

    Goes on where it was left; a turn is asked anew where the one before is judged otherwise now. Raises what source
    and judge raise; everything that came until then is stored.
    """
    found = firsts
    records: list[Record] = []
    for turn in range(2, plan.turns + 1):
        asks = [ask_again(ask, record, plan, turn) for ask, record in found if _wants_repair(record)]
        await gather(source, judge, asks, plan, store, _of_turn(turn, on_progress))
        found = [(ask, record) for ask in asks if (record := store.get(ask.key)) is not None]
        records += [record for _, record in found]
    return store.finish(key_of(record) for record in records)


def ask_again(ask: Ask, record: Record, plan: Plan, turn: int) -> Ask:
    """What is asked after an answer that was judged and did not pass."""
    assert plan.grader is not None
    message = repair_turn(GraderName(plan.grader), reply(_verdict(record)))
    said = continued(ask.prompt, with_opening(plan.opening, str(record["completion"])), clean(message))
    seed = seed_of(plan.seed, ask.mode, ask.problem.id, ask.sample, turn)
    return replace(ask, turn=turn, said=said, seed=seed)


def continued(prompt: Prompt, completion: str, message: str) -> Prompt:
    """A conversation with one more answer and one more turn of the user; of a text, the same one below the other.

    Chats are given answers without thoughts, as models expect of earlier turns.
    """
    if isinstance(prompt, str):
        return f"{prompt}{completion}\n\n{message}\n\n"
    answer: Message = {"role": "assistant", "content": without_thoughts(completion)}
    return [*prompt, answer, {"role": "user", "content": message}]


def without_thoughts(completion: str) -> str:
    """What stands behind the thoughts; nothing where they never end."""
    thoughts, end, answer = completion.rpartition("</think>")
    if end:
        return answer.lstrip("\n")
    return "" if completion.lstrip().startswith("<think>") else completion


def _verdict(record: Mapping[str, Any]) -> Graded:
    fields = {name: record[name] for name in NO_VERDICT if name != "fault"}
    try:
        return Graded.model_validate({"id": "earlier", "cpu_ms": 0, "wall_ms": 0, **fields})
    except ValidationError as error:
        raise Misuse(f"{record['prompt_id']}: its stored verdict is none of ours: {explain(error)}") from None


def _wants_repair(record: Record) -> bool:
    return is_judged(record) and record["passed"] is not True


def _of_turn(turn: int, on_progress: OnProgress) -> OnProgress:
    return lambda what, done, total: on_progress(f"{what}, turn {turn}", done, total)
