"""A task's text as the model reads it: a plain text, or messages for a chat template. Tokenizes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainer.config import PromptConfig
from trainer.data import Example

Message = dict[str, str]
Prompt = str | list[Message]


def render(config: PromptConfig, example: Example) -> Prompt:
    """The prompt for one task."""
    fields = {name: getattr(example.task, name, None) or "" for name in ("signature", "module", "crate", "sprint_goal")}
    return render_text(config, example.prompt, fields)


def render_text(config: PromptConfig, prompt: str, fields: Mapping[str, str] | None = None) -> Prompt:
    """The same for a bare text, as a warm start has it."""
    asked = _filled(config.template, {**(fields or {}), "prompt": prompt})
    if config.style == "plain":
        shown = [_filled(config.template, {"prompt": shot.prompt}) + shot.completion for shot in config.examples]
        return "\n\n".join([*shown, asked])
    messages = [{"role": "system", "content": config.system}] if config.system is not None else []
    for shot in config.examples:
        messages.append({"role": "user", "content": _filled(config.template, {"prompt": shot.prompt})})
        messages.append({"role": "assistant", "content": shot.completion})
    return [*messages, {"role": "user", "content": asked}]


def _filled(template: str, fields: Mapping[str, str]) -> str:
    # In one pass and not with str.format: code in templates and prompts is full of braces.
    return re.sub(r"\{(prompt|signature|module|crate|sprint_goal)\}", lambda match: fields.get(match[1], ""), template)


def text_of(completion: Any) -> str:
    """What the model wrote, from either form in which TRL hands over a completion."""
    if isinstance(completion, str):
        return completion
    return "".join(str(message.get("content") or "") for message in completion)


def token_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """The prompt's tokens, exactly as TRL's trainer makes them."""
    if isinstance(prompt, str):
        ids: list[int] = tokenizer(text=prompt)["input_ids"]
        return ids
    rendered = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)
    return list(rendered["input_ids"])
