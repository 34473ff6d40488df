"""What can be wrong with story tasks: references that are titles or stand in the goal, and answers
to try.

Judges texts by their words alone and asks no grader; `corpus.task_validation` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradus.contract import Graded
from gradus.tasks.story import StoryTask
from services.graders.story.lexicon import extract_stems, load_word_list
from services.graders.story.parser import Rejected, read_story

LEAKED_SHARE = 0.8
"""Share of a want's words that occur in the goal. From this share on, a copy of the goal answers
the story."""
FEWEST_WORDS = 3
"""Shortest text, in words, that counts as contained in another."""
MOST_TOLD = 5
SENTENCE_WORDS = 8
"""Shortest text with a comma, in words, that is taken for a sentence and not for a title."""
ENGLISH_SHARE = 0.15
"""Share of function words from which a sentence is English; it is about 0.4 in English stories."""
_FOREIGN_OPENING = re.compile(
    r"\W*(?:(?:als|jako|kot|som|como) \w|en tant qu|in qualità d|comme )", re.IGNORECASE
)
"""How a story begins in German, Dutch, Polish, Czech, Danish, Norwegian, Swedish, Spanish,
Portuguese, French and Italian."""


# ----------------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class RewardBounds:
    """What an answer must earn: at least `minimum`, less than `below`."""

    minimum: float = 0.0
    below: float = 2.0

    def describe_miss(self, which: str, result: Graded) -> str | None:
        """Return what to tell of a result on the wrong side of the bar; None on the right one."""
        if result.reward < self.minimum:
            reasons = [
                f"line {diagnostic.line}: {diagnostic.message}"
                if diagnostic.line
                else diagnostic.message
                for diagnostic in result.diagnostics
            ]
            explanation = (
                "; ".join(reasons[:MOST_TOLD])
                or ", ".join(result.flags)
                or "too little of what was asked for"
            )
            return (
                f"{which} earns {result.reward:.2f}, not at least {self.minimum:.2f}: {explanation}"
            )
        if result.reward >= self.below:
            return f"{which} earns {result.reward:.2f}; it should earn less than {self.below:.2f}"
        return None


GOOD = 0.5
REFERENCES = RewardBounds(minimum=0.9)
TITLES = RewardBounds(minimum=GOOD)
SOLUTION = RewardBounds(minimum=0.4)
LAZY = RewardBounds(below=GOOD)


def generate_answers(
    values: Mapping[str, Any], task: StoryTask
) -> Iterator[tuple[str, str, RewardBounds]]:
    """Answers to try on a task: what each is, its text, and what it must earn."""
    references = [" ".join(text.split()) for text in task.references]
    stories = []
    for text in references:
        is_title = isinstance(read_story(text), Rejected) and not is_foreign(text)
        stories.append(f"As a user, I want {text}." if is_title else text)
    bounds = REFERENCES if stories == references else TITLES
    yield "the references as the answer", "\n".join(stories), bounds
    for which, bar in (("solution", SOLUTION), ("stub", LAZY)):
        if isinstance(values.get(which), str) and values[which]:
            yield f"the {which}", values[which], bar


# ------------------------------------------------------------------------------------------- texts


def is_foreign(text: str) -> bool:
    """Return whether a text is a sentence in another language than English, which the grader cannot
    read: by its script, how it begins, or how few of its words are English function words."""
    letters = [letter for letter in text if letter.isalpha()]
    if 3 * sum(letter > "\u024f" for letter in letters) > len(letters):
        return True
    if _FOREIGN_OPENING.match(text):
        return True
    text = re.sub(r"\([^()]*\)?", " ", text)  # titles list codes in brackets
    words = re.findall(r"[^\W\d_]+", text.lower())
    english = sum(word in load_word_list("stop_words") for word in words)
    is_sentence = len(words) >= SENTENCE_WORDS and "," in text
    return is_sentence and english < ENGLISH_SHARE * len(words)


def check_references(values: Mapping[str, Any], task: StoryTask) -> tuple[list[str], list[str]]:
    """Return problems and warnings that the texts of a task show."""
    problems: list[str] = []
    warnings = []
    wants = []
    titles = []
    reasons = []
    for number, reference in enumerate(task.references, 1):
        text = " ".join(reference.split())
        parsed = read_story(text)
        if isinstance(parsed, Rejected):
            titles.append(number)
            reasons.append(f"{number}: {parsed.reason}")
            wants.append(text)
        else:
            wants.append(parsed.want)
    if titles:
        shown_reasons = "; ".join(reasons[:MOST_TOLD])
        warnings.append(f"{_render_count(titles, len(wants))} no story ({shown_reasons})")
    copied = find_copied_references(values, task)
    if copied:
        problems.append(
            f"{_render_count(copied, len(wants))} word for word in the prompt, goal or context"
        )
    warnings += _check_goal(wants, task.sprint_goal, problems)
    return problems, warnings


def find_copied_references(values: Mapping[str, Any], task: StoryTask) -> list[int]:
    """Return the numbers, from 1, of the references whose want stands in the prompt, goal or
    context word for word."""
    shown = _join_words(
        " ".join([str(values.get("prompt") or ""), task.sprint_goal, str(task.team_context)])
    )
    copied = []
    for number, reference in enumerate(task.references, 1):
        text = " ".join(reference.split())
        parsed = read_story(text)
        want = text if isinstance(parsed, Rejected) else parsed.want
        if len(want.split()) >= FEWEST_WORDS and _join_words(want) in shown:
            copied.append(number)
    return copied


def _check_goal(wants: Sequence[str], goal: str, problems: list[str]) -> Iterator[str]:
    """Yield a warning where some references stand in the goal by their words; where most do, it
    goes to `problems`."""
    goal_words = set(extract_stems(goal))
    leaked = {}
    for number, want in enumerate(wants, 1):
        words = set(extract_stems(want))
        share = len(words & goal_words) / max(1, len(words))
        if len(words) > 1 and share >= LEAKED_SHARE:
            leaked[number] = share
    if not leaked:
        return
    message = (
        f"{_render_count(leaked, len(wants))} in the goal with at least {min(leaked.values()):.0%}"
        " of their words"
    )
    if 2 * len(leaked) > len(wants):
        problems.append(message)
    else:
        yield message


def _join_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _render_count(numbers: Sequence[int] | Mapping[int, Any], total: int) -> str:
    shown = ", ".join(map(str, list(numbers)[:MOST_TOLD]))
    if len(numbers) > MOST_TOLD:
        shown += ", ..."
    verb = "is" if len(numbers) == 1 else "are"
    return f"{len(numbers)} of {total} references ({shown}) {verb}"
