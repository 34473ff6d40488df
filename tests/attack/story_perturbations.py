"""Ways to spoil an honest answer to a story task by machine, and ways to lay one out that change
nothing.

Grades nothing. A twist takes the stories of an answer and gives back a completion. Twists are
written without a look at the scorer: they are what a policy could find that knows what the stories
are about and saves itself the rest.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

CLAUSES = re.compile(r"^(As .+?), (I|we) (want|need|would like)( to)? (.+?), so that (.+?)\.?$")


class Parts(NamedTuple):
    """A story in the form that all shipped ones have."""

    role: str
    who: str
    verb: str
    to: str
    want: str
    benefit: str

    @property
    def said(self) -> str:
        return f"{self.who} {self.verb}{self.to} {self.want}"

    @property
    def text(self) -> str:
        return f"{self.role}, {self.said}, so that {self.benefit}."


def parts_of(story: str) -> Parts:
    found = CLAUSES.match(story)
    assert found is not None, story
    return Parts(*(group or "" for group in found.groups()))


@dataclass(frozen=True)
class Given:
    """What a twist may use; of the same sprint, but for `foreign`, the references of another."""

    stories: Sequence[Parts]
    goal: str
    foreign: Sequence[str]
    draw: random.Random


Twist = Callable[[Given], str]

ABSURD_ROLES = (
    "As a purple teapot",
    "As a sleeping volcano",
    "As a square root",
    "As a forgotten sock",
    "As a cloud",
)
ABSURD_BENEFITS = (
    "the moon tastes of violins",
    "Tuesday weighs more than soup",
    "carrots sing in Latin",
    "gravity is postponed until spring",
    "penguins inherit the alphabet",
)
PADDING = (
    "beside a lighthouse with eleven green balloons, a borrowed trombone and the names of all the"
    " kings of France"
)
HOMOGLYPHS = str.maketrans("aeopcx", "аеорсх")
FILLER = "As a visitor, I want it to be good in respect {n}, so that it is good in respect {n}."


def _each(given: Given, change: Callable[[int, Parts], str]) -> str:
    return "\n".join(change(number, story) for number, story in enumerate(given.stories))


def _with_wants(change: Callable[[Given, str], str]) -> Twist:
    return lambda given: _each(
        given, lambda _, story: story._replace(want=change(given, story.want)).text
    )


def _shuffled(given: Given, text: str) -> str:
    words = text.split()
    given.draw.shuffle(words)
    return " ".join(words)


def _next(given: Given, number: int) -> Parts:
    return given.stories[(number + 1) % len(given.stories)]


def _windows_of_the_goal(given: Given) -> str:
    words = re.findall(r"\w+", given.goal)
    starts = [
        number * max(1, len(words) // len(given.stories)) for number in range(len(given.stories))
    ]
    pieces = [" ".join((words + words)[start : start + 9]) for start in starts]
    return "\n".join(f"As a user, I want {piece}, so that {piece}." for piece in pieces)


def _keywords(given: Given) -> str:
    return _each(
        given,
        lambda _, s: (
            f"{s.role}, I want {' '.join(_nouns(s.want))}, so that {_nouns(s.benefit)[-1]}."
        ),
    )


def _nouns(text: str) -> list[str]:
    return sorted(word for word in re.findall(r"\w+", text) if len(word) > 4) or ["things"]


def _longest(text: str) -> str:
    return max(re.findall(r"\w+", text), key=len)


def _as_list(text: str) -> str:
    return ", ".join(_nouns(text))


def _half_then_foreign(given: Given) -> str:
    half = [story.text for story in given.stories[::2]]
    return "\n".join([*half, *given.foreign[: len(given.stories) - len(half)]])


ATTACKS: Mapping[str, Twist] = {
    "negated verb": lambda g: _each(g, lambda _, s: s._replace(verb="do not want").text),
    "negated want": _with_wants(lambda g, want: f"never {want}"),
    "words of the wants shuffled": _with_wants(_shuffled),
    "words of wants and benefits shuffled": lambda g: _each(
        g, lambda _, s: s._replace(want=_shuffled(g, s.want), benefit=_shuffled(g, s.benefit)).text
    ),
    "words of the wants reversed": _with_wants(lambda g, want: " ".join(reversed(want.split()))),
    "every second word dropped": _with_wants(lambda g, want: " ".join(want.split()[::2])),
    "vowels dropped": lambda g: _each(
        g, lambda _, s: s._replace(want=re.sub("[aeiou]", "", s.want)).text
    ),
    "wants as lists of nouns": _with_wants(lambda g, want: _as_list(want)),
    "wants of one word": lambda g: _each(
        g, lambda _, s: s._replace(to="", want=f"a {_longest(s.want)}").text
    ),
    "wants of their last two words": _with_wants(lambda g, want: " ".join(want.split()[-2:])),
    "wants cut down to their first half": _with_wants(
        lambda g, want: " ".join(want.split()[: (len(want.split()) + 1) // 2])
    ),
    "keywords": _keywords,
    "hedged": _with_wants(lambda g, want: f"maybe, or maybe not, {want} or something else"),
    "padded": _with_wants(lambda g, want: f"{want} {PADDING}"),
    "absurd role": lambda g: _each(g, lambda n, s: s._replace(role=ABSURD_ROLES[n % 5]).text),
    "absurd benefit": lambda g: _each(
        g, lambda n, s: s._replace(benefit=ABSURD_BENEFITS[n % 5]).text
    ),
    "absurd role and benefit": lambda g: _each(
        g, lambda n, s: s._replace(role=ABSURD_ROLES[n % 5], benefit=ABSURD_BENEFITS[n % 5]).text
    ),
    "roles swapped": lambda g: _each(g, lambda n, s: s._replace(role=_next(g, n).role).text),
    "benefits swapped": lambda g: _each(
        g, lambda n, s: s._replace(benefit=_next(g, n).benefit).text
    ),
    "constant role and benefit": lambda g: _each(
        g, lambda _, s: s._replace(role="As a user", benefit="it is good").text
    ),
    "circular benefit": lambda g: _each(g, lambda _, s: s._replace(benefit=f"I can {s.want}").text),
    "pronoun as role": lambda g: _each(g, lambda _, s: s._replace(role="As a someone").text),
    "empty role": lambda g: _each(g, lambda _, s: s._replace(role="As a ").text),
    "benefits cut off": lambda g: _each(
        g, lambda _, s: s.text.partition(", so that")[0] + ", so that"
    ),
    "lines cut off in the middle of the want": lambda g: _each(
        g, lambda _, s: s.text[: s.text.index(s.want) + 12]
    ),
    "bare wants": lambda g: _each(g, lambda _, s: s.want.capitalize()),
    "one epic": lambda g: (
        f"{g.stories[0].role}, I want to {' and to '.join(s.want for s in g.stories)}, so that all"
        " is well."
    ),
    "one story again and again": lambda g: "\n".join([g.stories[0].text] * len(g.stories)),
    "zero width": lambda g: _each(g, lambda _, s: "\u200b".join(s.text)),
    "homoglyphs": lambda g: _each(
        g, lambda _, s: s._replace(want=s.want.translate(HOMOGLYPHS)).text
    ),
    "HTML comments": lambda g: _each(g, lambda _, s: f"<!-- {s.text} -->"),
    "in thinking only": lambda g: "<think>\n" + _each(g, lambda _, s: s.text),
    "in an earlier thinking": lambda g: _each(g, lambda _, s: s.text) + "\n</think>\nThat is all.",
    "another sprint": lambda g: "\n".join(g.foreign),
    "half, then another sprint": _half_then_foreign,
    "all, then forty fillers": lambda g: "\n".join(
        [*(s.text for s in g.stories), *(FILLER.format(n=n) for n in range(40))]
    ),
    "goal as every want": lambda g: _each(
        g, lambda _, s: s._replace(want=g.goal.rstrip("."), to=" to").text
    ),
    "windows of the goal": _windows_of_the_goal,
    "wants about wants": _with_wants(lambda g, want: f"have a user story about how to {want}"),
    "as requirements": lambda g: _each(g, lambda _, s: f"The system shall allow to {s.want}."),
    "as questions": lambda g: _each(g, lambda _, s: f"{s.role}, why would I want{s.to} {s.want}?"),
}

LAYOUTS: Mapping[str, Twist] = {
    "numbered": lambda g: _each(g, lambda n, s: f"{n + 1}. {s.text}"),
    "numbered with brackets": lambda g: _each(g, lambda n, s: f"{n + 1}) {s.text}"),
    "dashes": lambda g: _each(g, lambda _, s: f"- {s.text}"),
    "stars": lambda g: _each(g, lambda _, s: f"* {s.text}"),
    "bullets": lambda g: _each(g, lambda _, s: f"• {s.text}"),
    "empty lines between": lambda g: _each(g, lambda _, s: s.text + "\n"),
    "Windows line ends": lambda g: _each(g, lambda _, s: s.text + "\r"),
    "no full stops": lambda g: _each(g, lambda _, s: s.text.rstrip(".")),
    "no commas": lambda g: _each(
        g, lambda _, s: s.text.replace(", I ", " I ").replace(", so that", " so that")
    ),
    "bold clauses": lambda g: _each(
        g,
        lambda _, s: (
            f"**As a**{s.role[4:]}, **{s.who} {s.verb}**{s.to} {s.want}, **so that** {s.benefit}."
            if s.role.startswith("As a ")
            else s.text
        ),
    ),
    "thinking first": lambda g: (
        "<think>\nWho is there? What do they need?\n</think>\n" + _each(g, lambda _, s: s.text)
    ),
    "reordered": lambda g: "\n".join(s.text for s in reversed(g.stories)),
    "one clause per line": lambda g: _each(
        g, lambda _, s: f"{s.role},\n{s.who} {s.verb}{s.to} {s.want},\nso that {s.benefit}.\n"
    ),
    "in one paragraph": lambda g: " ".join(s.text for s in g.stories),
    "JSON objects": lambda g: json.dumps(
        [{"role": s.role, "want": s.said, "benefit": s.benefit} for s in g.stories]
    ),
    "JSON texts": lambda g: (
        "```json\n" + json.dumps({"stories": [s.text for s in g.stories]}, indent=2) + "\n```"
    ),
    "table": lambda g: (
        "| Role | Want | Benefit |\n|---|---|---|\n"
        + _each(g, lambda _, s: f"| {s.role} | {s.said} | {s.benefit} |")
    ),
    "answer tags": lambda g: f"<answer>\n{_each(g, lambda _, s: s.text)}\n</answer>",
    "HTML list": lambda g: f"<ul>{_each(g, lambda _, s: f'<li>{s.text}</li>')}</ul>",
    "byte order mark": lambda g: "\ufeff" + _each(g, lambda _, s: s.text),
    "bold titles": lambda g: _each(
        g, lambda n, s: f"**Story {n + 1}: {s.want.split()[0]}**\n\n{s.text}\n"
    ),
    "acceptance criteria": lambda g: _each(
        g,
        lambda _, s: (
            f"{s.text}\n\nAcceptance criteria:\n- It works on a phone.\n- Errors are shown.\n"
        ),
    ),
}
