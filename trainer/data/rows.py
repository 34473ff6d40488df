"""Rows of answers and of preferences, in the layouts that people have them in, made into the two
that TRL takes.

A row that cannot be used is refused with file and line, and skipped only where that is asked for.
Tokenizes nothing; what a row is for, training or measuring, is drawn here, so that rows with the
same prompt stay on one side.

Answers: `prompt` + `completion` (or `solution`), `instruction` + `input` + `output` (Alpaca),
`messages`, or `text`. Preferences: `chosen` + `rejected`, with a `prompt`, or without one where
both begin alike. Prompts, completions and both of a pair may be texts, or lists of messages.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gradus.errors import Misuse
from gradus.row_reader import Row
from gradus.strict_json import parse_strict_json
from trainer.config.run import PromptConfig
from trainer.config.stages import RowStage, SftStage
from trainer.data.prompts import Message, Prompt, render_text
from trainer.data.tasks import DESCRIBING, read_named_rows, split

Values = dict[str, Any]

ANSWER_COLUMNS = (
    "prompt",
    "completion",
    "solution",
    "instruction",
    "input",
    "output",
    "messages",
    "text",
)
PAIR_COLUMNS = ("prompt", "chosen", "rejected")
TOLD_OF_PAIRS = (
    "prompt_id",
    "chosen_reward",
    "rejected_reward",
    "margin",
    "chosen_passed",
    "rejected_passed",
)
"""What `gradus pairs` says of each pair; nothing is learnt from it."""
ROLES = ("system", "developer", "user", "assistant", "tool")
MESSAGE_KEYS = (
    "role",
    "content",
    "name",
    "thinking",
    "reasoning_content",
    "tool_calls",
    "tool_call_id",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One row as TRL takes it."""

    where: str
    values: Values
    prompt_key: str
    """Key that rows with equal prompts share."""
    whole_key: str
    """Key that equal rows share."""


@dataclass(frozen=True, slots=True)
class Split:
    """What to train on and what to measure on; no prompt of the one is in the other, if they come
    from one file."""

    train: tuple[Sample, ...]
    held_out: tuple[Sample, ...]
    skipped: tuple[str, ...]
    """Why, for each row that was left out."""


# ----------------------------------------------------------------------------------------- reading


def load_rows(config: RowStage) -> Split:
    """Return the rows of a run, split. Raises Misuse naming file and line."""
    data = config.data
    train, lost = read_samples(config, data.dataset, data.limit)
    if data.eval_dataset is not None:
        held_out, lost_too = read_samples(config, data.eval_dataset)
        _refuse_overlap(train, held_out)
        _refuse_two_forms([*train, *held_out])
        return Split(tuple(train), tuple(held_out), (*lost, *lost_too))
    _refuse_two_forms(train)
    parts = split(
        train, lambda sample: _compute_key([config.seed, sample.prompt_key]), data.held_out
    )
    if not parts[0]:
        raise Misuse(f"{data.dataset}: held_out {data.held_out} leaves no row to train on")
    if data.held_out > 0 and not parts[1]:
        prompts = len({sample.prompt_key for sample in train})
        raise Misuse(
            f"{data.dataset}: data.held_out {data.held_out} of {prompts} prompts ({len(train)}"
            " rows) leaves none to measure on, as rows with one prompt stay together: set a"
            " greater share, or 0 to measure on nothing"
        )
    return Split(*parts, tuple(lost))


def read_samples(
    config: RowStage, dataset: str, limit: int | None = None
) -> tuple[list[Sample], list[str]]:
    """Return the rows of one dataset, in its order, and what is wrong with those that are
    skipped."""
    columns: tuple[str, ...] = (*PAIR_COLUMNS, *TOLD_OF_PAIRS)
    make = _parse_pair
    reader = _Reader(config.prompt)
    if isinstance(config, SftStage):
        columns = ANSWER_COLUMNS
        make = _parse_answer
        reader = _Reader(
            config.prompt,
            bool(config.sft.get("assistant_only_loss"))
            or config.sft.get("completion_only_loss") is False,
        )
    column_names = ["id", *columns, "tools", *(name for name in DESCRIBING if name != "message")]
    samples = []
    lost = []
    for row in itertools.islice(read_named_rows(dataset, config.data, column_names), limit):
        try:
            samples.append(reader.convert_row(row, make))
        except Misuse as misuse:
            if config.data.unusable == "refuse":
                raise
            lost.append(str(misuse))
    if not samples:
        raise Misuse(
            f"{dataset}: holds no rows" + (f" that can be used: {lost[0]}" if lost else "")
        )
    return samples, lost


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns rows into samples, one after another."""

    prompt: PromptConfig
    whole_conversations: bool = False
    """A conversation is kept whole when the loss is not on its last answer only."""

    def convert_row(self, row: Row, make: Callable[[_Reader, Row], Values]) -> Sample:
        _refuse_unusable_text(row)
        values = make(self, row)
        if "tools" in row.values and not _is_empty(row.values["tools"]):
            # As JSON, the form in which tools of different rows fit into one column.
            values["tools"] = json.dumps(_read_list(row, "tools", "tools"))
        if self.prompt.chat_template_kwargs:  # TRL reads them from each row
            values["chat_template_kwargs"] = self.prompt.chat_template_kwargs
        prompt = values.get("prompt", values.get("messages", [])[:-1] or values.get("text"))
        return Sample(row.where, values, _compute_key(prompt), _compute_key(values))

    def render_prompt(self, prompt: str | list[Message]) -> Prompt:
        """Return a text through the config's template; messages as they are, with its system line
        if they have none."""
        if isinstance(prompt, str):
            return render_text(self.prompt, prompt)
        if self.prompt.system is None or prompt[0]["role"] in ("system", "developer"):
            return prompt
        return [{"role": "system", "content": self.prompt.system}, *prompt]


# ----------------------------------------------------------------------------------------- answers


def _parse_answer(reader: _Reader, row: Row) -> Values:
    present = set()
    for name in ANSWER_COLUMNS:
        if not _is_empty(row.values.get(name)):
            present.add(name)
    layouts = []
    for name in ("messages", "text", "instruction", "prompt"):
        if name in present:
            layouts.append(name)
    if len(layouts) != 1:
        problem = f"has {' and '.join(layouts)}" if layouts else "has none of them"
        raise Misuse(
            f"{row.where}: a row is prompt + completion (or solution), instruction + input +"
            f" output, messages, or text; this one {problem}"
        )
    if layouts == ["messages"]:
        return _parse_conversation(reader, row)
    if layouts == ["text"]:
        return {"text": row.text("text")}
    if layouts == ["instruction"]:
        extra = "" if _is_empty(row.values.get("input")) else f"\n\n{row.text('input')}"
        return _build_values(
            reader.render_prompt(row.text("instruction") + extra), completion=row.text("output")
        )
    answers = []
    for name in ("completion", "solution"):
        if name in present:
            answers.append(name)
    if len(answers) != 1:
        raise Misuse(
            f"{row.where}: completion:"
            f" {'and solution are both given' if answers else 'is missing or empty'}"
        )
    answer = _read_text_or_messages(row, answers[0])
    return _build_values(reader.render_prompt(_read_prompt(row)), completion=answer)


def _parse_conversation(reader: _Reader, row: Row) -> Values:
    messages = _read_messages(row, "messages")
    if messages[-1]["role"] != "assistant":
        raise Misuse(
            f"{row.where}: messages: the last one is {messages[-1]['role']}'s, so there is no"
            " answer to learn"
        )
    if len(messages) < 2:
        raise Misuse(f"{row.where}: messages: there is an answer and nothing that was asked")
    prompt = reader.render_prompt(messages[:-1])
    assert not isinstance(prompt, str)
    if reader.whole_conversations:
        return {"messages": [*prompt, messages[-1]]}
    return {"prompt": prompt, "completion": [messages[-1]]}


# ---------------------------------------------------------------------- preferences


def _parse_pair(reader: _Reader, row: Row) -> Values:
    chosen, rejected = (_read_text_or_messages(row, name) for name in ("chosen", "rejected"))
    if isinstance(chosen, str) is not isinstance(rejected, str):
        raise Misuse(f"{row.where}: chosen and rejected: one is a text and the other is messages")
    if chosen == rejected:
        raise Misuse(
            f"{row.where}: chosen and rejected are the same, so there is nothing to prefer"
        )
    if not _is_empty(row.values.get("prompt")):
        return _build_values(
            reader.render_prompt(_read_prompt(row)), chosen=chosen, rejected=rejected
        )
    if isinstance(chosen, str) and isinstance(rejected, str):
        cut = _count_shared_chars(chosen, rejected)
        prompt: Prompt = chosen[:cut]
    else:
        cut = sum(
            1
            for _ in itertools.takewhile(
                lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False)
            )
        )
        prompt = reader.render_prompt(list(chosen[:cut])) if cut else []  # type: ignore[arg-type]
    if not prompt or not chosen[cut:] or not rejected[cut:]:
        raise Misuse(
            f"{row.where}: prompt: is missing, and chosen and rejected do not begin alike and end"
            " differently"
        )
    return {"prompt": prompt, "chosen": chosen[cut:], "rejected": rejected[cut:]}


LAST_TURN = "\n\nAssistant:"
"""Where an answer begins in dialogues that are written as one text."""


def _count_shared_chars(chosen: str, rejected: str) -> int:
    """Return how long the common prompt of two texts is: not into a word that both answers happen
    to begin with."""
    shared = os.path.commonprefix([chosen, rejected])
    turn = shared.rfind(LAST_TURN)
    if turn >= 0:
        return turn + len(LAST_TURN)
    return max((shared.rfind(space) + 1 for space in " \n\t"), default=0)


# ---------------------------------------------------------------------- parts of rows


def _build_values(prompt: Prompt, **answers: str | list[Message]) -> Values:
    """Return a prompt with its answers, all of them texts or all of them messages."""
    if isinstance(prompt, str) and all(isinstance(answer, str) for answer in answers.values()):
        return {"prompt": prompt, **answers}
    if isinstance(prompt, str):
        prompt_messages = [{"role": "user", "content": prompt}]
    else:
        prompt_messages = prompt
    answer_messages = {}
    for name, answer in answers.items():
        if isinstance(answer, str):
            answer_messages[name] = [{"role": "assistant", "content": answer}]
        else:
            answer_messages[name] = answer
    return {"prompt": prompt_messages, **answer_messages}


def _read_prompt(row: Row) -> str | list[Message]:
    prompt = _read_text_or_messages(row, "prompt")
    if not isinstance(prompt, str) and prompt[-1]["role"] == "assistant":
        raise Misuse(f"{row.where}: prompt: ends with the assistant's words")
    return prompt


def _read_text_or_messages(row: Row, column: str) -> str | list[Message]:
    value = row.values.get(column)
    if isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith('[{"')):
        return _read_messages(row, column)
    return row.text(column)


def _read_list(row: Row, column: str, item_kind: str) -> list[Any]:
    """Return the list in a column; a cell of a CSV file holds it as JSON."""
    value = row.values.get(column)
    try:
        items = parse_strict_json(value) if isinstance(value, str) else value
    except ValueError as error:
        raise Misuse(f"{row.where}: {column}: is not JSON: {error}") from None
    if not isinstance(items, list):
        raise Misuse(f"{row.where}: {column}: is no list of {item_kind}")
    return items


def _read_messages(row: Row, column: str) -> list[Message]:
    messages = []
    for number, item in enumerate(_read_list(row, column, "messages")):
        location = f"{row.where}: {column}[{number}]"
        if not isinstance(item, Mapping):
            raise Misuse(f"{location}: is no message with role and content")
        if strangers := sorted(str(key) for key in item if key not in MESSAGE_KEYS):
            raise Misuse(
                f"{location}: unknown key {strangers[0]}; known: {', '.join(MESSAGE_KEYS)}"
            )
        if item.get("role") not in ROLES:
            raise Misuse(f"{location}: role {item.get('role')!r} is not one of {', '.join(ROLES)}")
        says = {key: value for key, value in item.items() if value is not None}
        if not isinstance(says.get("content", ""), str) or not (
            says.get("content") or says.get("tool_calls")
        ):
            raise Misuse(f"{location}: content: is missing, empty or not a text")
        messages.append(says)
    if not messages:
        raise Misuse(f"{row.where}: {column}: is no list of messages")
    return messages


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value == []


def _refuse_unusable_text(row: Row) -> None:
    """Half a surrogate pair has no tokens."""
    try:
        json.dumps(row.values, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise Misuse(
            f"{row.where}: holds half a surrogate pair, which no encoding has a form for"
        ) from None


# ------------------------------------------------------------------------------------------ splits


def _compute_key(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _describe_form(sample: Sample) -> str:
    values = sample.values
    if "text" in values or "messages" in values:
        return "text" if "text" in values else "messages"
    if isinstance(values["prompt"], str):
        return "prompts as text"
    return "prompts as messages"


def _refuse_two_forms(samples: Iterable[Sample]) -> None:
    """TRL looks at the first row and takes the others for the same."""
    first: Sample | None = None
    for sample in samples:
        first = first or sample
        if _describe_form(sample) != _describe_form(first):
            raise Misuse(
                f"{sample.where}: is of another form than {first.where}: {_describe_form(sample)}"
                " there,"
                f" {_describe_form(first)} here; one run takes one form (prompt.style: chat makes"
                " messages of texts)"
            )


def _refuse_overlap(train: Iterable[Sample], held_out: Iterable[Sample]) -> None:
    trained = {sample.whole_key: sample.where for sample in train}
    for sample in held_out:
        if (same := trained.get(sample.whole_key)) is not None:
            raise Misuse(
                f"{sample.where}: is also at {same}; what is measured on must not be trained on"
            )
