"""What the words of a story tell beside its vector: hedges, wants of many verbs, denials in the
reference's own words, talk of stories, benefits without content. Knows no model.

A rule stands here only if it is right on at least 98 of 100 honest paraphrases.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import combinations

from services.graders.story.lexicon import extract_stems, extract_words, load_word_list, stem

SAME_WORDS = 0.75
"""Share of common words of meaning from which a denied want is the reference denied."""
SAME_BENEFIT = 0.5
"""Shared words, of all words of two benefits, from which they are one."""
_DENIAL = re.compile(
    r"\b(?:not|never|no longer|cannot|\w{2,9}n't|impossible|unable|refuse|nobody|no one|none)\b",
    re.IGNORECASE,
)
_EMPTY_DENIAL = re.compile(
    r"\W*(?:this|that|it|the above|the story)\b[^.,]{0,40}\b(?:never|not|impossible)\b[^.,]{0,25}"
    r"\b(?:possible|allowed|happen|work|implemented|built|delivered|done)\b\W*",
    re.IGNORECASE,
)
_DOUBT = r"(?:maybe|perhaps|possibly|probably|presumably|somehow|eventually|some ?day)"
_LATER = (
    r"if (?:at all )?possible|if at all|no (?:hurry|rush)|nice to have|at some point"
    r"|(?<!for )(?<!by )(?<!in )(?<!than )(?<!after )one day"
    r"|(?:in|for) (?:a|some) (?:later|future) (?:release|version|sprint)"
)
_HEDGE = re.compile(
    rf"^(?:to )?(?:be able to )?(?:{_DOUBT}|might)\b|\b(?:{_DOUBT}|{_LATER})\W*(?:$|,)"
    r"|\bor (?:maybe not|whatever|something)\b"
    r"|\bif (?:there is|there's|we have|time) (?:time|permits|allows)\b",
    re.IGNORECASE,
)
"""Doubt about the want: in front of it, or at its end or that of one of its phrases. `See
what might go wrong` doubts something else."""
_OPTION = re.compile(r"^(?:the|an?) (?:option|choice|chance|possibility)\b", re.IGNORECASE)
_DETERMINER = r"(?:an?|the|my|our|your|their|his|its|every)"
_NO_NOUN = (
    r"(?:an?|the|my|our|your|their|of|to|in|at|by|for|from|with|into|and|or|but|i|we|they|he|she|it"
    r"|is|are|was|were|be|been|could|would|should|not|so|if|when|that|this)"
)
_SLIP = re.compile(
    rf"\b(?:{_DETERMINER} {_NO_NOUN}|(?:and|or|but) (?:and|or|but)|(?:is|are|be) (?:is|are|be|of)"
    r"|of (?:and|or|but|of|to|is|are|be|from|with|for)|to (?:of|to|and|or|is|are|was|from|with|for)"
    r"|(?:i|we|they) (?:an?|the|my|our|of|to|from|with))(?![-\w])"
    rf"|\b(?:{_DETERMINER}|and|or|but|of)\W*$|^(?:and|or|but|of)\b",
    re.IGNORECASE,
)
"""Two words that do not stand side by side in English, an article without a noun at the end."""
_JOINT = re.compile(r",(?:\s*and|\s*or)?\s|\s(?:and|or|&|as well as|plus)\s|/", re.IGNORECASE)


def is_hedged(want: str) -> bool:
    """Return whether a want leaves open that something is wanted."""
    return _HEDGE.search(want) is not None


def is_option(want: str) -> bool:
    """Return whether a want asks for the option to do something."""
    return _OPTION.match(want) is not None


def is_about_stories(want: str, known_stems: Collection[str]) -> bool:
    """Return whether a want speaks of stories, tickets or sprints where the task does not."""
    words = load_word_list("meta_words").intersection(extract_words(want))
    return any(stem(word) not in known_stems for word in words)


def count_parts(want: str) -> int:
    """Return the number of parts that `and`, `or` and commas join."""
    return 1 + len(_JOINT.findall(want))


def count_slips(text: str) -> int:
    """Return the number of places where words stand side by side that cannot: what is left of
    grammar in shuffled and stuffed wants."""
    return len(_SLIP.findall(text))


def is_denial(want: str, reference: str) -> bool:
    """Return whether a want is the reference's own words, denied, or the other way round."""
    if bool(_DENIAL.search(want)) == bool(_DENIAL.search(reference)):
        return False
    denial = set()
    for word in extract_words(" ".join(_DENIAL.findall(f"{want} {reference}"))):
        denial.add(stem(word))
    own = set(extract_stems(want)) - denial
    asked = set(extract_stems(reference)) - denial
    return len(own & asked) >= SAME_WORDS * max(1, len(own | asked))


def takes_back(children: Sequence[str], want: str) -> bool:
    """Return whether a criterion denies the want: in the want's own words, or `this must never be
    possible`."""
    want_stems = set(extract_stems(want))
    for child in children:
        if _EMPTY_DENIAL.fullmatch(child):
            return True
        stems = set(extract_stems(child))
        has_all = len(want_stems & stems) >= 0.9 * max(2, len(want_stems))
        if has_all and len(stems) <= len(want_stems) + 3 and _DENIAL.search(child):
            return True
    return False


def has_own_benefit(want: str, benefit: str) -> bool:
    """Return whether the benefit says more than the want did."""
    benefit_stems = set(extract_stems(benefit))
    new = benefit_stems.difference(extract_stems(want))
    return bool(new) and len(new) > 0.3 * len(benefit_stems)


def rank_benefits(benefits: Sequence[str | None]) -> list[int]:
    """Return for each benefit how many before it are, but for few words, the same."""
    stems = [frozenset(extract_stems(benefit or "")) for benefit in benefits]
    ranks = [0] * len(stems)
    for first, second in combinations(range(len(stems)), 2):
        union = len(stems[first] | stems[second])
        if union and len(stems[first] & stems[second]) >= SAME_BENEFIT * union:
            ranks[second] += 1
    return ranks
