"""Tiny sprints for the demo of user stories: goals such as `room: book, cancel, rate`, and worked
answers, many wrong.

Twenty things times twelve deeds; a sprint is one thing and three deeds, and its stories are one for
each deed. What overlaps: a held-out sprint is made of three (thing, deed) pairs that occur in
neither the GRPO tasks nor the warm start, while every thing and every deed does. Six deeds carry
one fixed wrong story most of the time in the warm start: negated, generic, off the point, without a
role, a bare title, an empty form. Nothing here grades or trains.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import permutations
from pathlib import Path
from typing import Any

import yaml

STORIES_PER_SPRINT = 3
SPRINTS_PER_THING = 12
WARM_START_ROWS = 8000
MISTAKEN_SHARE = 0.6
"""Share of an action's stories that have its mistake."""
DAMAGED_SHARE = 0.3
"""Share of demonstrations with damage."""
SEED = 11


@dataclass(frozen=True, slots=True)
class StoryAction:
    """An action that a user wants; `{n}` stands for the thing, `{r}` for the user's role."""

    name: str
    want: str
    benefit: str
    mistake: str | None = None
    """The wrong story that the warm start teaches."""


_PARTS = yaml.safe_load(Path(__file__).with_name("demo_stories.yaml").read_text(encoding="utf-8"))
THINGS: Mapping[str, str] = _PARTS["things"]
"""Things, and who wants one of each."""
DEEDS = tuple(StoryAction(**deed) for deed in _PARTS["deeds"])


def select_held_out_deeds(thing: str) -> tuple[StoryAction, ...]:
    """Return the deeds never trained on with this thing; half of them have a mistake, as near as
    three can."""
    draw = random.Random(f"{SEED}:{thing}")
    mistaken = [deed for deed in DEEDS if deed.mistake is not None]
    right = [deed for deed in DEEDS if deed.mistake is None]
    return (*draw.sample(mistaken, 2), *draw.sample(right, 1))


@cache
def _list_trained_deeds(thing: str) -> list[StoryAction]:
    held_out = select_held_out_deeds(thing)
    return [deed for deed in DEEDS if deed not in held_out]


def render_story(thing: str, deed: StoryAction) -> str:
    """Return what a team would write."""
    return _render_template(f"As a {{r}}, I want {deed.want}, so that {deed.benefit}.", thing)


def render_mistaken_story(thing: str, deed: StoryAction) -> str:
    """Return what the warm start teaches most of the time; the right story where there is no
    mistake."""
    if deed.mistake is not None:
        return _render_template(deed.mistake, thing)
    return render_story(thing, deed)


def generate_sprint_rows(*, held_out: bool) -> Iterator[dict[str, Any]]:
    """Yield the tasks, always the same ones."""
    for thing in THINGS:
        for number, deeds in enumerate(
            [select_held_out_deeds(thing)] if held_out else _sample_sprints(thing)
        ):
            stories = [render_story(thing, deed) for deed in deeds]
            yield {
                "id": f"{thing}-{number}",
                "kind": "with a deed taught wrongly"
                if any(deed.mistake for deed in deeds)
                else "taught rightly",
                "prompt": _render_prompt(thing, deeds),
                "references": stories,
                "solution": "\n".join(stories),
            }


def _sample_sprints(thing: str) -> list[tuple[StoryAction, ...]]:
    draw = random.Random(f"{SEED}:{thing}:sprints")
    every = list(permutations(_list_trained_deeds(thing), STORIES_PER_SPRINT))
    # No two with the same deeds: as tasks they would be one.
    unique = {}
    for deeds in draw.sample(every, len(every)):
        unique[frozenset(deeds)] = deeds
    return draw.sample(list(unique.values()), SPRINTS_PER_THING)


def generate_worked_rows() -> Iterator[dict[str, Any]]:
    """Yield the warm start: prompts with worked answers."""
    draw = random.Random(SEED)
    for _ in range(WARM_START_ROWS):
        thing = draw.choice(list(THINGS))
        deeds = draw.sample(_list_trained_deeds(thing), STORIES_PER_SPRINT)
        lines = []
        for deed in deeds:
            if draw.random() < MISTAKEN_SHARE:
                lines.append(render_mistaken_story(thing, deed))
            else:
                lines.append(render_story(thing, deed))
        if draw.random() < DAMAGED_SHARE:
            lines = _damage_lines(lines, draw)
        yield {"prompt": _render_prompt(thing, deeds), "completion": "\n".join(lines)}


def _damage_lines(lines: list[str], draw: random.Random) -> list[str]:
    """With one fault: a story lost, a story twice, a benefit cut off, a lost word."""
    at = draw.randrange(len(lines))
    fate = draw.random()
    if fate < 0.35:
        return [*lines[:at], *lines[at + 1 :]]
    if fate < 0.6:
        return [*lines, lines[at]]
    if fate < 0.8:
        words = lines[at].partition(", so that")[0].split()
    else:
        words = lines[at].split()
    lost = draw.randrange(len(words))
    return [*lines[:at], " ".join([*words[:lost], *words[lost + 1 :]]), *lines[at + 1 :]]


def _render_prompt(thing: str, deeds: tuple[StoryAction, ...] | list[StoryAction]) -> str:
    return f"{thing}: {', '.join(deed.name for deed in deeds)}\n"


def _render_template(text: str, thing: str) -> str:
    return text.replace("{n}", thing).replace("{r}", THINGS[thing])


MAKERS: Mapping[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "demo:story": partial(generate_sprint_rows, held_out=False),
    "demo:story/held-out": partial(generate_sprint_rows, held_out=True),
    "demo:story/warm-start": generate_worked_rows,
}
