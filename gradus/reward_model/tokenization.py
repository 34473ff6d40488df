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
        self._control = control_tokens(tokenizer)
        self._control_in_prompt = lru_cache(_KEPT_PROMPTS)(self._counted_in_prompt)

    def read(self, prompt: Prompt, completion: str) -> TokenizedText:
        """The tokens of `completion` behind `prompt`, a text or the messages so far.

        Raises InternalFault for messages that the model's chat template does not take.
        """
        if isinstance(prompt, str):
            ids, is_spelt = self._plain(_mended(prompt), _mended(completion))
        else:
            turns = tuple(
                (message["role"], _mended(message.get("content") or "")) for message in prompt
            )
            ids, is_spelt = self._chat(turns, _mended(completion))
        kept = ids[-self._limit :] if self._limit else ids
        return TokenizedText(kept, len(kept) < len(ids), is_spelt)

    # ---------------------------------------------------------------------- plain texts

    def _plain(self, prompt: str, completion: str) -> tuple[list[int], bool]:
        end = self._tokenizer.eos_token
        body = completion.removesuffix(end)
        is_spelt = False
        while True:
            text = prompt + body + end
            ids, spans = self._encoded(text)
            spelt = self._spelt(text, ids, spans, len(prompt), len(prompt) + len(body))
            if not spelt:
                return ids, is_spelt
            body = _blanked(text, spelt)[len(prompt) : -len(end)]
            is_spelt = True

    def _encoded(self, text: str, **options: Any) -> tuple[list[int], list[tuple[int, int]]]:
        told = self._tokenizer(text=text, return_offsets_mapping=True, **options)
        return list(told["input_ids"]), list(told["offset_mapping"])

    def _spelt(
        self, text: str, ids: Sequence[int], spans: Sequence[tuple[int, int]], start: int, end: int
    ) -> list[tuple[int, int]]:
        """Where control tokens touch text[start:end], no further than it goes. White space alone
        names none."""
        inside = [
            (max(begin, start), min(stop, end))
            for one, (begin, stop) in zip(ids, spans, strict=True)
            if one in self._control
        ]
        return [(begin, stop) for begin, stop in inside if text[begin:stop].strip()]

    # --------------------------------------------------------------------------------------- chats

    def _chat(self, turns: Turns, completion: str) -> tuple[list[int], bool]:
        expected = self._control_in_prompt(turns)
        ids = self._rendered(turns, completion)
        if not self._surplus(ids, expected):
            return ids, False
        ids = self._rendered(turns, self._without_control(completion))
        if self._surplus(ids, expected):
            message = (
                "this completion becomes control tokens by way of the model's chat template: it is"
                " not scored"
            )
            raise InternalFault(message, retryable=False)
        return ids, True

    def _without_control(self, completion: str) -> str:
        while True:
            ids, spans = self._encoded(completion, add_special_tokens=False)
            spelt = self._spelt(completion, ids, spans, 0, len(completion))
            if not spelt:
                return completion
            completion = _blanked(completion, spelt)

    def _surplus(self, ids: Sequence[int], expected: Counter[int]) -> bool:
        return bool(Counter(one for one in ids if one in self._control) - expected)

    def _counted_in_prompt(self, turns: Turns) -> Counter[int]:
        """The control tokens of the conversation whatever the completion says: of its turns, not of
        their texts."""
        return Counter(one for one in self._rendered(turns, "x") if one in self._control)

    def _rendered(self, turns: Turns, completion: str) -> list[int]:
        if not self._tokenizer.chat_template:
            message = (
                "this reward model has no chat template, so it cannot read messages: send the"
                " prompt as a text"
            )
            raise InternalFault(message, retryable=False)
        messages = [
            {"role": role, "content": content}
            for role, content in (*turns, ("assistant", completion))
        ]
        try:
            return list(
                self._tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)[
                    "input_ids"
                ]
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            message = f"the reward model's chat template does not take these messages: {error}"
            raise InternalFault(message, retryable=False) from None


def control_tokens(tokenizer: Any) -> frozenset[int]:
    """The tokens that the tokenizer declares special. Tags that a template treats as words,
    `<think>`, are none."""
    declared = {one for one, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(declared | set(tokenizer.all_special_ids))


def _blanked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """`text` with a space in place of each span; spans are in order."""
    kept = []
    at = 0
    for begin, stop in spans:
        kept.append(text[at:begin])
        at = stop
    return " ".join([*kept, text[at:]])


def _mended(text: str) -> str:
    """Half a surrogate pair is no character, and no tokenizer takes it."""
    return (
        text
        if text.isascii()
        else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )
