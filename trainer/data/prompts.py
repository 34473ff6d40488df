"""A task's text as the model reads it: a plain text, or messages for a chat template. Tokenizes
nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gradus.tasks.story import StoryTask
from trainer.config.run import PromptConfig
from trainer.data.tasks import Example

Message = dict[str, str]
Prompt = str | list[Message]


def render(config: PromptConfig, example: Example) -> Prompt:
    """Return the prompt for one task."""
    if isinstance(example.task, StoryTask):
        goal = example.task.sprint_goal or example.prompt
        context = {name: _render_words(value) for name, value in example.task.team_context.items()}
        lines = []
        for name, words in context.items():
            if words:
                lines.append(f"{name.replace('_', ' ').capitalize()}: {words}")
        fields = {"sprint_goal": goal, "team_context": "\n".join(lines) or UNKNOWN}
    else:
        fields = {
            name: getattr(example.task, name, None) or ""
            for name in ("signature", "module", "crate")
        }
    return render_text(config, example.prompt, fields)


def render_text(
    config: PromptConfig, prompt: str, fields: Mapping[str, str] | None = None
) -> Prompt:
    """Prompt of a bare text, as rows of a warm start have it; the text is the sprint goal too."""
    bare = {"sprint_goal": prompt, "team_context": UNKNOWN}
    places = {**(fields or bare), "prompt": prompt}
    # In one pass and not with str.format: code in templates and prompts is full of braces.
    text = _PLACES.sub(lambda match: places.get(match[1], ""), config.template)
    if config.style == "plain":
        return text
    if config.system is not None:
        messages = [{"role": "system", "content": config.system}]
    else:
        messages = []
    return [*messages, {"role": "user", "content": text}]


UNKNOWN = "not given"
"""What stands for the context of a team that none is given of: an empty place invites the model to
make one up."""

_PLACES = re.compile(r"\{(prompt|signature|module|crate|sprint_goal|team_context)\}")


def _render_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_render_words(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_render_words, value))
    return "" if value is None else str(value).strip()


def encode_prompt(
    tokenizer: Any,
    prompt: Prompt,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template: Mapping[str, Any] | None = None,
) -> list[int]:
    """Return the prompt's tokens, exactly as TRL's trainer makes them; with messages, `tools` are
    declared to the model.

    `template`: the configuration's `prompt.chat_template_kwargs`.
    """
    if isinstance(prompt, str):
        ids: list[int] = tokenizer(text=prompt)["input_ids"]
        return ids
    further = {**(template or {}), **({"tools": list(tools)} if tools else {})}
    rendered = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, tokenize=True, return_dict=True, **further
    )
    return list(rendered["input_ids"])
