"""Tokens of a user's turn between two answers, as the tokenizer's chat template writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from trl.chat_template_utils import get_training_chat_template

from gradus.errors import Misuse

NO_KWARGS: Mapping[str, Any] = {}
"""Further arguments of the chat template: the configuration's `prompt.chat_template_kwargs`."""
_BEFORE = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def usable_template(
    tokenizer: Any, end_ids: Collection[int], kwargs: Mapping[str, Any] = NO_KWARGS
) -> str | None:
    """A chat template that leaves earlier turns as they were; None for the tokenizer's own.

    TRL has such versions of the templates of known models: Qwen3's own rewrites earlier answers.
    Raises Misuse where there is none.
    """
    if _user_ids(tokenizer, None, "c", end_ids, kwargs) is not None:
        return None
    try:
        template = get_training_chat_template(tokenizer)
    except ValueError:
        template = None
    if template is None or _user_ids(tokenizer, template, "c", end_ids, kwargs) is None:
        raise Misuse(
            "turns: the chat template of this tokenizer writes an earlier answer differently once a"
            " turn follows, or does not end it with an end-of-sequence token. Use a model with"
            " another template"
        )
    return str(template)


def user_ids(
    tokenizer: Any,
    template: str | None,
    message: str,
    end_ids: Collection[int],
    kwargs: Mapping[str, Any] = NO_KWARGS,
) -> list[int]:
    """The tokens between an answer's end-of-sequence token and the next answer."""
    ids = _user_ids(tokenizer, template, message, end_ids, kwargs)
    assert ids is not None, "`usable_template` has accepted this template"
    return ids


def _user_ids(
    tokenizer: Any,
    template: str | None,
    message: str,
    end_ids: Collection[int],
    kwargs: Mapping[str, Any],
) -> list[int] | None:
    how = {
        "return_dict": True,
        **kwargs,
        **({} if template is None else {"chat_template": template}),
    }
    after = [*_BEFORE, {"role": "user", "content": message}]
    ids = list(tokenizer.apply_chat_template(_BEFORE, **how)["input_ids"])
    whole = list(
        tokenizer.apply_chat_template(after, add_generation_prompt=True, **how)["input_ids"]
    )
    end = max((place for place, token in enumerate(ids, start=1) if token in end_ids), default=0)
    return whole[end:] if end and whole[:end] == ids[:end] else None
