"""A prompt and a completion -> the tokens that a reward model reads, as TRL's RewardTrainer made
them in its training.

A completion is text and nothing else. A tokenizer makes its control tokens, those that open and
close a chat's turns, of their names wherever these stand; who writes `<|im_end|>` could so end the
own turn and have a second, better one judged. What a completion spells out of them is therefore
read as a space. Loads no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from jinja2 import TemplateError

from gradus.errors import InternalFault

Message = Mapping[str, str]
Prompt = str | Sequence[Message]
Turns = tuple[tuple[str, str], ...]
"""(role, content) of each message."""

_KEPT_PROMPTS = 256


class TokenizedText(NamedTuple):
    """The token ids of a completion behind its prompt, and what was changed for them."""

    ids: list[int]
    was_cut: bool
    """It is longer than the model reads, so its beginning is missing."""
    spelt_control_tokens: bool
    """The completion named control tokens, which were read as spaces."""


class PromptTokenizer:
    """Tokenizes completions behind their prompts; thread-safe. `limit`: how many last tokens are
    kept; None: all."""

    def __init__(self, tokenizer: Any, limit: int | None) -> None:
        self._tokenizer = tokenizer
        self._limit = limit
        self._control = get_control_tokens(tokenizer)
        self._control_in_prompt = lru_cache(_KEPT_PROMPTS)(self._count_prompt_control)

    def read(self, prompt: Prompt, completion: str) -> TokenizedText:
        """Return the tokens of `completion` behind `prompt`, a text or the messages so far.

        Raises InternalFault for messages that the model's chat template does not take.
        """
        if isinstance(prompt, str):
            ids, is_spelt = self._encode_plain(
                _replace_surrogates(prompt), _replace_surrogates(completion)
            )
        else:
            turns = tuple(
                (message["role"], _replace_surrogates(message.get("content") or ""))
                for message in prompt
            )
            ids, is_spelt = self._encode_chat(turns, _replace_surrogates(completion))
        tail_ids = ids[-self._limit :] if self._limit else ids
        return TokenizedText(tail_ids, len(tail_ids) < len(ids), is_spelt)

    # ---------------------------------------------------------------------- plain texts

    def _encode_plain(self, prompt: str, completion: str) -> tuple[list[int], bool]:
        end = self._tokenizer.eos_token
        body = completion.removesuffix(end)
        is_spelt = False
        while True:
            text = prompt + body + end
            ids, spans = self._encode_text(text)
            spelt = self._find_control_spans(text, ids, spans, len(prompt), len(prompt) + len(body))
            if not spelt:
                return ids, is_spelt
            body = _replace_spans(text, spelt)[len(prompt) : -len(end)]
            is_spelt = True

    def _encode_text(self, text: str, **options: Any) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = self._tokenizer(text=text, return_offsets_mapping=True, **options)
        return list(encoding["input_ids"]), list(encoding["offset_mapping"])

    def _find_control_spans(
        self, text: str, ids: Sequence[int], spans: Sequence[tuple[int, int]], start: int, end: int
    ) -> list[tuple[int, int]]:
        """Return where control tokens touch text[start:end], no further than it goes. White space
        alone names none."""
        inside = []
        for token_id, (begin, stop) in zip(ids, spans, strict=True):
            if token_id in self._control:
                inside.append((max(begin, start), min(stop, end)))
        return [(begin, stop) for begin, stop in inside if text[begin:stop].strip()]

    # --------------------------------------------------------------------------------------- chats

    def _encode_chat(self, turns: Turns, completion: str) -> tuple[list[int], bool]:
        expected = self._control_in_prompt(turns)
        ids = self._apply_template(turns, completion)
        if not self._has_surplus(ids, expected):
            return ids, False
        ids = self._apply_template(turns, self._remove_control(completion))
        if self._has_surplus(ids, expected):
            message = (
                "this completion becomes control tokens by way of the model's chat template: it is"
                " not scored"
            )
            raise InternalFault(message, retryable=False)
        return ids, True

    def _remove_control(self, completion: str) -> str:
        while True:
            ids, spans = self._encode_text(completion, add_special_tokens=False)
            spelt = self._find_control_spans(completion, ids, spans, 0, len(completion))
            if not spelt:
                return completion
            completion = _replace_spans(completion, spelt)

    def _has_surplus(self, ids: Sequence[int], expected: Counter[int]) -> bool:
        return bool(Counter(token_id for token_id in ids if token_id in self._control) - expected)

    def _count_prompt_control(self, turns: Turns) -> Counter[int]:
        """Return the control tokens that the template puts around the turns, without those in their
        texts."""
        return Counter(
            token_id for token_id in self._apply_template(turns, "x") if token_id in self._control
        )

    def _apply_template(self, turns: Turns, completion: str) -> list[int]:
        if not self._tokenizer.chat_template:
            message = (
                "this reward model has no chat template, so it cannot read messages: send the"
                " prompt as a text"
            )
            raise InternalFault(message, retryable=False)
        messages = []
        for role, content in (*turns, ("assistant", completion)):
            messages.append({"role": role, "content": content})
        try:
            return list(
                self._tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)[
                    "input_ids"
                ]
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            message = f"the reward model's chat template does not take these messages: {error}"
            raise InternalFault(message, retryable=False) from None


def get_control_tokens(tokenizer: Any) -> frozenset[int]:
    """Return the tokens that the tokenizer declares special. Tags that a template treats as words,
    `<think>`, are none."""
    declared = set()
    for token_id, token in tokenizer.added_tokens_decoder.items():
        if token.special:
            declared.add(token_id)
    return frozenset(declared | set(tokenizer.all_special_ids))


def _replace_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """`text` with a space in place of each span; spans are in order."""
    parts = []
    at = 0
    for begin, stop in spans:
        parts.append(text[at:begin])
        at = stop
    return " ".join([*parts, text[at:]])


def _replace_surrogates(text: str) -> str:
    """Half a surrogate pair is no character, and no tokenizer takes it."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
