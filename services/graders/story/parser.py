"""Completion -> stories: the text behind the thinking, cleaned, cut into stories, each into role,
want and benefit.

Reads layouts that people write: numbered, bulleted, bold, quoted, with labels, one clause per line,
benefit first. Pure, linear in the text. Judges neither whether a story makes sense nor whether it
was asked for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from gradus.envelopes import extract_message
from services.graders.story.frames import extract_comments, remove_frames, remove_tags
from services.graders.story.lexicon import extract_words, load_word_list

MAX_STORY_WORDS = 120
MAX_ROLE_WORDS = 15
MAX_FRAME_WORDS = 12
FRAME_LINES = 12
"""Lines per story that titles, acceptance criteria and labels may have before they count as
lines."""

THINK_UNCLOSED, THINK_NESTED, TOO_LONG = "think:unclosed", "think:nested", "story:too_long"
HIDDEN, MIXED, TO_JUDGE = "story:hidden_characters", "story:mixed_scripts", "story:message_to_judge"
VOID = frozenset({THINK_UNCLOSED, THINK_NESTED, TOO_LONG})
"""Flags of a completion that has no answer."""

# Quantifiers are possessive or bounded: no text makes these patterns slow.
_THINK = re.compile(r"<\s{0,3}(/?)\s{0,3}think(?:ing)?\s{0,3}>", re.IGNORECASE)
_JOINED_SYMBOL = re.compile("[\ufe0e\ufe0f]|(?<=[\u2190-\u2bff\U0001f000-\U0001faff])\u200d")
_BULLET = re.compile(
    r"(?:[-*+•‣◦–—>#]{1,6}\s+|\(?\d{1,4}[.):]\s*+|\(?[a-z][.)]\s+|\[[ x]\]\s+)", re.IGNORECASE
)
_EMPHASIS = re.compile(r"\*{1,3}|(?<!\w)_{1,3}(?=[^\W_])|(?<=[^\W_])_{1,3}(?!\w)|`{1,2}")
_RULE = re.compile(r"[-=*_\s|]{3,}+")
_BOLD_LINE = re.compile(r"\W{0,8}(\*\*|__)[^*_\n]{1,120}\1\W{0,3}")
_DETAILS = re.compile(
    r"(?:acceptance criteri(?:a|on)|criteria|ac|conditions? of"
    r" (?:satisfaction|acceptance)|definition of done|notes?|"
    r"details?|scenarios?|examples?|(?:sub-?)?tasks?|assumptions?|dependencies)\b[ \d]{0,4}(?::|$)",
    re.IGNORECASE,
)
"""Opens the lines below a story that belong to it and are none."""
_LABELLED = re.compile(
    r"(?:(?:given|when|then)\b(?=.)|ac"
    r" ?\d{1,3}\b|(?:story|title|name|id|epic|theme|feature|priority|estimate|"
    r"(?:story )?points?|effort|size|status|labels?|tags?|component|moscow)\s{0,2}[:=#])",
    re.IGNORECASE,
)
_JUDGE = r"(?:grader|judge|evaluator|scorer|reviewer|rater|language model|ai)"
_TO_JUDGE = re.compile(
    rf"\b(?:ignore|disregard|forget|override)\b[^\n.]{{0,40}}\b(?:instructions?|prompts?|rules|rubric)\b|"
    r"\b(?:dear|hey|hello|note to|message (?:to|for)|instructions? (?:to|for)|you are|as)(?: an?|"
    r" the| your)? "
    rf"{_JUDGE}\b|"
    r"\b(?:full|maximum|highest|top|perfect)\s+(?:marks?|scores?|rewards?|grades?|points|rating)\b|"
    r"^\W{0,3}(?:system|reward|score|grade|verdict|passed|coverage)\W{0,3}[:=]",
    re.IGNORECASE | re.MULTILINE,
)

_LABEL = r"(?:[^\n]{0,60}?[:\]).|–—-]\s{0,3}|\W{0,3})"
_ROLE_OPENING = re.compile(
    rf"^{_LABEL}as\b:?\s{{0,3}}(?:(?:an?|the|as)\b:?\s{{0,3}}){{0,2}}", re.IGNORECASE
)
_BENEFIT_FIRST = re.compile(
    r"^(in order (?:to|that)\b.{3,300}?)(?:,\s{0,3}|\s)(as (?:an?|the)?\s{0,2}.{2,})$",
    re.IGNORECASE,
)
_ADVERB = r"(?:\s{1,3}(?:also|really|just|simply|always|still|often))?"
_ABLE = (
    r"(?:\s{1,3}(?:to\s{1,3})?(?:be able to|have the (?:ability|option|possibility) (?:to|of)|to)\b"
    r"|\s{1,3}the ability to\b)?"
)
_WISH = (
    r"(?:(?:would|should|'d)(?: very much)? (?:like|love|prefer|want|wish)|'d"
    r" like|want|wants|wish|needs?|prefer|"
    r"expect|hope|require|(?:am|'m|are|would be|should be|must be|will be) able|"
    r"have|can|could|must|should|shall|will)\b"
)
_WANT = re.compile(
    rf"(?:^|,?\s{{0,3}}\b)(?:i|we)(?:(?={_ADVERB}\s{{0,3}}{_WISH}(?!\s{{0,3}}(?:not|never|n't)\b)){_ADVERB}\s{{0,3}}{_WISH}:?{_ABLE}"
    rf"|(?=\s|'))",
    re.IGNORECASE,
)
_BENEFIT = re.compile(
    r"(?:^|,?\s{1,3}|\b)(?:so(?:,? ?so)? that\b(?: so that\b| that\b)?|so as to\b|in order(?: that|"
    r" to| for|:)(?!\w)|"
    r"such that\b|"
    r"because\b|so\b,?(?=\s{1,3}(?:i|we|they|it|he|she|you)\b)|"
    r"(?<=,\s)so\b(?!\s{1,3}(?:far|on|many|much|long|called)\b)|"
    r"so\b(?=(?:\s{1,3}[\w'-]{1,30}){1,4}\s{1,3}(?:can|could|will|may|do|don't|does|is|are|has|have|get|gets|stays?)\b))"
    r"[,:]?\s{0,3}",
    re.IGNORECASE,
)
_BENEFIT_WORD = re.compile(r"[sib\u017f\u0130\u0131SIB](?i:o\b|n order\b|uch that\b|ecause\b)")
"""In every match of `_BENEFIT`, at most `_BEFORE_WORD` characters behind where it begins; much
faster to look for."""
_BEFORE_WORD = 6
_STARTS_CLAUSE = re.compile(
    rf"^(?:(i|we)\b(?:{_ADVERB}\s{{0,3}}{_WISH})|so\b|in order\b|because\b|to be able to\b)",
    re.IGNORECASE,
)
_SPOKEN = re.compile(r"\b(?:i|we)\b", re.IGNORECASE)
_WHOLE_STORY = re.compile(
    r"\bas (?:an?|the) (?:(?!\bso\b)[^.,;:!?]){1,60}?,?\s{1,3}i\s{1,3}(?:want|need|would"
    r" like|can)\b",
    re.IGNORECASE,
)
_SECOND_WISH = re.compile(
    r"(?:\b(?:and|but)|[,;.:])\s{1,3}(?:also\s{1,3})?i (?:want|need|would like) to\b|\bas an?"
    r" [^.,;]{1,60}, i\b",
    re.IGNORECASE,
)
_NEGATED_WISH = re.compile(
    r"^(?:never|cannot|(?:do|would|will|shall|should|can|could)"
    r" not|(?:do|would|wo|sha|should|ca|could)n't)"
    r"(?:\s{1,3}ever)?\s{1,3}(?:want|need|like|wish|love|prefer|hope|expect)(?:\s{1,3}to)?\b\s{0,3}",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"^\W*(?:[\[<{(][^\]>})]{0,60}[\]>})]|_{2,}|\.{3,}|…)\W*$")
_QUOTES = str.maketrans(
    {"‘": "'", "’": "'", "‛": "'", "`": "`", "“": '"', "”": '"', "„": '"', "´": "'"}
)
_SCRIPTS = frozenset(
    {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "GEORGIAN", "HEBREW"}
)
_MEASURES = frozenset("μΩ")
_UNSEEN_CATEGORIES = frozenset({"Cf", "Cc", "Co", "Cn", "Mn", "Me"})
_UNSEEN = "\u115f\u1160\u3164\uffa0\u2800"


@dataclass(frozen=True, slots=True)
class Story:
    text: str
    role: str
    want: str
    """What is wished for, without `I want to`; a negation that stood before it is in it."""
    benefit: str | None
    line: int
    """1-based, in the cleaned answer."""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line, or lines that belong together, that are no story."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class StoryList:
    stories: tuple[Story, ...]
    rejected: tuple[Rejected, ...]
    lines: int
    """Stories and what stood beside them, one each; of titles, acceptance criteria and the like
    only those beyond FRAME_LINES a story and one more."""
    flags: tuple[str, ...]


def read(completion: str, characters: int, most_lines: int) -> StoryList:
    """Return the stories in `completion`, in the order in which they stand there.

    `characters`: at most, behind the thinking. `most_lines`: what stands behind them is counted and
    not read.
    """
    text, flags = extract_visible(completion, characters)
    if VOID & set(flags):
        return StoryList((), (), 0, tuple(flags))
    beside = [extract_comments(text)]
    groups, frames = _group_lines(remove_frames(text).splitlines(), most_lines)
    stories: list[Story] = []
    rejected: list[Rejected] = []
    for line, part in groups[:most_lines]:
        story = read_story(part, line)
        if isinstance(story, Story):
            stories.append(story)
        else:
            rejected.append(story)
            beside.append(part)
    if _TO_JUDGE.search("\n".join(beside)):
        flags.append(TO_JUDGE)
    lines = len(groups) + max(0, frames - FRAME_LINES * len(stories) - 1)
    return StoryList(tuple(stories), tuple(rejected), lines, tuple(flags))


def extract_visible(completion: str, characters: int) -> tuple[str, list[str]]:
    """Return what stands behind the last `</think>`, in normal form, and flags for what was taken
    out of it."""
    if "<" in completion or completion.startswith("analysis"):
        completion = extract_message(completion)
    depth = end = opened = closings = 0
    for tag in _THINK.finditer(completion):
        if tag[1]:
            depth = 0
            end = tag.end()
            closings += 1
        elif depth and completion[opened : tag.start()].strip():
            return "", [THINK_NESTED]
        else:  # a second one at once: models repeat the `<think>` that their prompt ended in
            depth = 1
            opened = tag.end()
    if depth:
        return "", [THINK_UNCLOSED]
    flags = ["think:twice"] if closings > 1 else []
    if len(completion) - end > characters:
        return "", [*flags, TOO_LONG]
    text, hidden = _normalize_text(completion[end:])
    if _THINK.search(text):
        return "", [*flags, *hidden, THINK_NESTED]
    return text, [*flags, *hidden]


def _normalize_text(text: str) -> tuple[str, list[str]]:
    """`text` in one normal form without what does not show, and flags that say what there was."""
    text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\\'", "'")
    if text.isascii():
        return text, []
    flags = []
    text = unicodedata.normalize("NFKC", _JOINED_SYMBOL.sub("", text)).translate(_QUOTES)
    shown = "".join(
        mark
        for mark in text
        if mark.isascii()
        or not (unicodedata.category(mark) in _UNSEEN_CATEGORIES or mark in _UNSEEN)
    )
    if shown != text:
        flags.append(HIDDEN)
    for word in re.findall(r"\w+", shown):
        letters = {mark for mark in word if mark.isalpha() and mark not in _MEASURES}
        scripts = {unicodedata.name(letter, "?").partition(" ")[0] for letter in letters} & _SCRIPTS
        if not word.isascii() and len(scripts) > 1:
            flags.append(MIXED)
            break
    return shown, flags


def clean_line(text: str) -> str:
    """Return one item on one line: in normal form, without bullets, emphasis, markup and what does
    not show."""
    plain, _ = _normalize_text(text)
    return _remove_markup(" ".join(remove_tags(plain).split()))[0]


def _group_lines(lines: Sequence[str], max_groups: int) -> tuple[list[tuple[int, str]], int]:
    """Line number and text of what may be a story each, clauses on lines of their own joined; and
    how many lines are titles, acceptance criteria and the like."""
    groups: list[tuple[int, str]] = []
    frames = 0
    open_ended = in_details = False
    for number, raw in enumerate(lines, 1):
        line, bulleted = (raw.strip(), False) if len(groups) > max_groups else _remove_markup(raw)
        if not line or _RULE.fullmatch(line):
            open_ended = open_ended and not line and not bulleted
        elif _ROLE_OPENING.match(line):
            groups.append((number, line))
            open_ended = True
            in_details = False
        elif open_ended and groups and _is_continuation(line, bulleted, groups[-1][1]):
            groups[-1] = (groups[-1][0], f"{groups[-1][1]} {line}")
        elif groups and (
            _DETAILS.match(line)
            or _LABELLED.match(line)
            or (in_details and (bulleted or raw[:1].isspace()))
        ):
            frames += 1
            open_ended = False
            in_details = in_details or _DETAILS.match(line) is not None
        elif len(line.split()) <= MAX_FRAME_WORDS and (
            raw.lstrip().startswith("#")
            or line.endswith(":")
            or _BOLD_LINE.fullmatch(raw.strip())
            or _is_title(lines, number - 1, line)
        ):
            frames += 1
            open_ended = in_details = False
        else:
            groups.append((number, line))
            open_ended = True
            in_details = False
    return groups, frames


def _is_title(lines: Sequence[str], at: int, line: str) -> bool:
    """`line`, bare, at `at` opens a paragraph, ends no sentence, and the line below begins a
    story."""
    opens = (at == 0 or not lines[at - 1].strip()) and line[-1] not in ".!?"
    return (
        opens
        and at + 1 < len(lines)
        and _ROLE_OPENING.match(_remove_markup(lines[at + 1])[0]) is not None
    )


def _remove_markup(raw: str) -> tuple[str, bool]:
    """Return the line without bullets, numbers and emphasis, and whether it had a bullet or
    number."""
    line = _EMPHASIS.sub("", raw).strip().strip("|").strip()
    bulleted = False
    while match := _BULLET.match(line):
        line = line[match.end() :].lstrip()
        bulleted = True
    return " ".join(line.strip('"').split()), bulleted


def _is_continuation(line: str, bulleted: bool, before: str) -> bool:
    if len(before) > 2000:
        return False
    clause = _STARTS_CLAUSE.match(line)
    if clause and not (_SPOKEN if clause[1] else _BENEFIT).search(before):
        return _ROLE_OPENING.match(before) is not None
    wrapped = line[:1].islower() or line.startswith("I ")
    return wrapped and not bulleted and before[-1:] not in ".!?:"


def read_story(text: str, line: int = 1) -> Story | Rejected:
    """Return the clauses of one story, or why it is none."""
    text = text[:8000]
    if text.lower().count("as ") > 1 and len(_WHOLE_STORY.findall(text)) > 1:
        return Rejected(line, "several stories in one")
    if len(extract_words(text)) > MAX_STORY_WORDS:
        return Rejected(line, f"longer than {MAX_STORY_WORDS} words")
    clauses = _parse_clauses(text)
    if clauses is None:
        return Rejected(line, "not of the form `As a <role>, I want <want>`")
    role, want, benefit = clauses
    problem = _find_problem(role, want)
    if problem:
        return Rejected(line, problem)
    flags = []
    if benefit is not None and not _has_meaning(benefit):
        benefit = None
        flags = ["story:empty_benefit"]
    return Story(text, role, want, benefit, line, tuple(flags))


def _parse_clauses(text: str) -> tuple[str, str, str | None] | None:
    early = None
    if first := _BENEFIT_FIRST.match(text):
        early = first[1]
        text = first[2]
    opening = _ROLE_OPENING.match(text)
    if not opening:
        return None
    after_role = text[opening.end() :]
    wish = _find_wish(after_role)
    if wish is None:
        return None
    role = after_role[: wish.start()]
    after_wish = after_role[wish.end() :]
    want, benefit = _split_benefit(after_wish)
    if benefit is None and early is not None:
        benefit = _BENEFIT.sub("", early, count=1)
    want = _NEGATED_WISH.sub("never ", _clean_clause(want))
    return _clean_clause(role), want, None if benefit is None else _clean_clause(benefit)


def _find_wish(after_role: str) -> re.Match[str] | None:
    """Return where the role ends: at a wish in words that are known, else at the first `I` or `we`
    behind the role."""
    before_benefit = _split_benefit(after_role[:400])[0]
    first = None
    for match in _WANT.finditer(before_benefit):
        if match.start() or after_role[:1] in ",":
            if len(match[0].strip(" ,").split()) > 1 or "'" in match[0]:
                return match
            first = first or match
    return first


def _split_benefit(text: str) -> tuple[str, str | None]:
    word = _BENEFIT_WORD.search(text)
    for marker in _BENEFIT.finditer(text, max(0, word.start() - _BEFORE_WORD)) if word else ():
        if text[: marker.start()].strip(" ,:"):
            return text[: marker.start()], text[marker.end() :]
    return text, None


def _clean_clause(clause: str) -> str:
    return clause.strip(" \t,;:.!\"'|-–—")


def _find_problem(role: str, want: str) -> str | None:
    if not _has_meaning(role) or load_word_list("stop_words").issuperset(extract_words(role)):
        return "the role is empty"
    if len(extract_words(role)) > MAX_ROLE_WORDS:
        return f"the role is longer than {MAX_ROLE_WORDS} words"
    if not _has_meaning(want):
        return "the want is empty"
    if _SECOND_WISH.search(want):
        return "more than one want in a story"
    return None


def _has_meaning(clause: str) -> bool:
    """Not empty, no placeholder, and one word at least that is neither a function word nor a name
    for a slot."""
    if _PLACEHOLDER.match(clause):
        return False
    stop_words, slot_words = load_word_list("stop_words"), load_word_list("slot_words")
    return not all(word in stop_words or word in slot_words for word in extract_words(clause))
