"""Completion -> stories: the text behind the thinking, cleaned, cut into a block per story with its
header, clauses and children, each block into role, want and benefit.

Pure, linear in the text. Judges neither whether a story makes sense nor whether it was asked for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from gradus.envelopes import extract_message
from services.graders.story.blocks import (
    Line,
    extract_comments,
    find_field,
    parse_lines,
    remove_marks,
    remove_tags,
    render_story,
)
from services.graders.story.lexicon import extract_words, load_word_list

MAX_STORY_WORDS = 120
MAX_ROLE_WORDS = 15
MAX_HEADER_WORDS = 12
FRAME_LINES = 12
"""Headers and children that a story may have before they count as lines."""

THINK_UNCLOSED, THINK_NESTED, TOO_LONG = "think:unclosed", "think:nested", "story:too_long"
HIDDEN, MIXED, TO_JUDGE = "story:hidden_characters", "story:mixed_scripts", "story:message_to_judge"
VOID = frozenset({THINK_UNCLOSED, THINK_NESTED, TOO_LONG})
"""Flags of a completion that has no answer."""

# Quantifiers are possessive or bounded: no text makes these patterns slow.
_THINK = re.compile(r"<\s{0,3}(/?)\s{0,3}think(?:ing)?\s{0,3}>", re.IGNORECASE)
_JOINED_SYMBOL = re.compile("[\ufe0e\ufe0f]|(?<=[\u2190-\u2bff\U0001f000-\U0001faff])\u200d")
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
_THOUGHT = re.compile(
    r"\b(?:hmm+|wait, (?:actually|no)|let me (?:think|reconsider|re-?read|start over)"
    r"|(?:okay|ok|alright),? (?:so )?(?:the user|i need to|let)|the user (?:wants|asks|asked)"
    r"|the references? (?:may|might|must|could|should))\b",
    re.IGNORECASE,
)
"""Thinking outside of its tags: it belongs to no story."""
_DISCARDED = re.compile(
    r"\b(?:rejected|discarded|out of scope|non-?goals?|obsolete"
    r"|(?:will|do|did|should|shall) not (?:be )?(?:build|built|do|done|implement)"
    r"|won't (?:do|build|have))",
    re.IGNORECASE,
)
"""Header of stories that are not part of the answer."""

_STORY_ID = r"(?:\[?[A-Z]{2,6}[-_ ]?\d{1,5}\]?\s{1,3})?"
_LABEL = rf"(?:{_STORY_ID}|[^\n]{{0,60}}?[:\]).|–—-]\s{{0,3}}|\W{{0,3}})"
_ROLE_OPENING = re.compile(
    rf"^{_LABEL}as\b:?\s{{0,3}}(?:(?:an?|the|as)\b:?\s{{0,3}}){{0,2}}", re.IGNORECASE
)
_LABELLED = re.compile(r"^([^\W\d][\w /'&-]{0,38}?)(?:\s?\(s\))?\s{0,2}[:=]\s{0,3}(.*)$")
_CHILD = re.compile(
    r"(?:(?:given|when|then)\b(?=.)|ac ?\d{1,3}\b|(?:acceptance criteri(?:a|on)|definition of done"
    r"|notes?|sub-?tasks?|dependenc(?:y|ies))\b)",
    re.IGNORECASE,
)
_BENEFIT_FIRST = re.compile(
    r"^((?:in order (?:not )?(?:to|that)|so that)\b.{3,300}?|to .{3,200}?)(?:,\s{0,3}|\s)"
    r"(as (?:an?|the)?\s{0,2}.{2,})$",
    re.IGNORECASE,
)
_ADVERB = r"(?:\s{1,3}(?:also|really|just|simply|always|still|often|would|will|only))?"
_ABLE = (
    r"(?:\s{1,3}(?:to\s{1,3})?(?:be able|have (?:the|an?) (?:ability|option|possibility|way"
    r"|opportunity|chance))\s{1,3}(?:to|of)\b"
    r"|\s{1,3}(?:the|an?) (?:ability|possibility|way|opportunity) to\b|\s{1,3}to(?!\s{1,3}not\b))?"
)
_STRONG_WISH = (
    r"(?:(?:would|should|'d)(?: very much)? (?:like|love|prefer|want|wish)|'d like|want|wish"
    r"|needs?(?!\s{1,3}not\b)"
    r"|prefer|expect|hope|require|(?:am|'m) (?:looking for|hoping(?: for)?)|'d appreciate"
    r"|would (?:appreciate|welcome|value))\b"
)
_WEAK_WISH = (
    r"(?:(?:am|'m|are|would be|should be|must be|will be) able"
    r"|have|can|could|must|should|shall|will)\b"
)
_NOT_DENIED = r"(?!\s{0,3}(?:not|never|n't)\b|n't\b)"
_POSSIBLE = (
    r"it (?:should|must|would|shall|has to|needs to) be (?:possible|nice|good|great|helpful|useful)"
    r"(?: for me)?(?= to | if | that )(?:\s{1,3}(?:to|if|that)\b)"
)
_WANT = re.compile(
    rf"(?:^|,?\s{{0,3}}\b)(?:(?:i|we){_ADVERB}\s{{0,3}}{_STRONG_WISH}:?{_ABLE}"
    rf"|(?:(?:my|our) (?:wish|goal|need)|what (?:i|we) (?:want|need)) is{_ABLE}"
    rf"|let me\b|{_POSSIBLE})",
    re.IGNORECASE,
)
_WEAK_WANT = re.compile(
    rf"(?:^|,?\s{{0,3}}\b)(?:i|we){_ADVERB}\s{{0,3}}{_WEAK_WISH}{_NOT_DENIED}:?{_ABLE}",
    re.IGNORECASE,
)
_ANY_WANT = re.compile(r"(?:^|,?\s{0,3}\b)(?:i|we)(?=\s|')\s{0,3}", re.IGNORECASE)
_UNWILLING = re.compile(
    r"^(?:(?:would|will|do|could)\s+)?(?:hates?|dread|doubt|refuse|detest|loathe|dislike|resent|fear"
    r"|decline|object|oppose|hardly|scarcely|barely|seldom|rarely|used to|no longer|regret|mind"
    r"|(?:could )?not care)\b",
    re.IGNORECASE,
)
_NO_WISH = re.compile(
    r"\bthe last thing (?:i|we)\b|\bcould(?: not|n't) care less\b"
    r"|\bwhy (?:would|should|do|on earth) (?:i|we)\b|\bspared? (?:from )?having to\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r",\s{1,3}((?:when|whenever|if|after|once|while|before|as soon as)\s.{3,200})$", re.IGNORECASE
)
_THIRD_PERSON = re.compile(
    r"^(?:an?|the|every) ([^.,;:]{2,60}?) (?:wants|needs|wishes|would like) to"
    r" (?:be able to )?(.{2,})$",
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
    rf"^(?:(i|we)\b(?:{_ADVERB}\s{{0,3}}(?:{_STRONG_WISH}|{_WEAK_WISH}))|so\b|in order\b|because\b"
    r"|to be able to\b)",
    re.IGNORECASE,
)
_SPOKEN = re.compile(r"\b(?:i|we)\b", re.IGNORECASE)
_NEXT_STORY = re.compile(
    r"(?<=[.!?;])\s{1,8}(?:[-*•]\s|\(?\d{1,3}[.):]\s)?"
    rf"(?=[*_]{{0,3}}as\b[*_]{{0,3}}[^.,;:!?]{{1,80}},?\s{{1,3}}[*_]{{0,3}}(?:i|we)\b[*_]{{0,3}}"
    rf"(?:\s{{1,3}}[*_]{{0,3}}(?:also |really )?(?:{_STRONG_WISH}|{_WEAK_WISH})|'d\b))",
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
_PLANNING = re.compile(
    r"\s{0,3}[(\[](?:[^()\[\]]{0,30}\b)?(?:priority|(?:story )?points?|sp|effort|estimate|size"
    r"|moscow|must|should|could|high|medium|low|xs|[sml]|xl|p\d)\b[^()\[\]]{0,60}[)\]]\s{0,3}[.!]?$",
    re.IGNORECASE,
)
"""What is put behind a story to plan it."""
_PLACEHOLDER = re.compile(
    r"^\W*(?:[\[<{(](?=[^\]>})]{0,60}[\]>})])[^\]>})\w]*\w[^\]>})]*[\]>})]|_{2,})\W*$"
)
"""A slot with a word in it. Without the word, each of many brackets would be the beginning of one,
and the rest of the text be read again for it."""
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
    children: tuple[str, ...] = ()
    """Acceptance criteria, notes, estimates: what belongs to the story and is none of its
    clauses."""


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
    """Stories and what stood beside them, one each; of headers and children only those beyond
    FRAME_LINES a story and one more."""
    flags: tuple[str, ...]


@dataclass(slots=True)
class _Group:
    """What may be a story, with what belongs to it."""

    first: Line
    text: str
    """Clauses on lines of their own joined."""
    children: list[str] = field(default_factory=list)
    is_open: bool = True
    """Whether a clause may follow."""
    is_discarded: bool = False
    fields: dict[str, str] = field(default_factory=dict)
    """Clauses that stood behind labels."""


def read(completion: str, characters: int, most_lines: int) -> StoryList:
    """Return the stories in `completion`, in the order in which they stand there.

    `characters`: at most, behind the thinking. `most_lines`: what stands behind them is counted and
    not read.
    """
    text, flags = extract_visible(completion, characters)
    if VOID & set(flags):
        return StoryList((), (), 0, tuple(flags))
    beside = [extract_comments(text)]
    groups, frames = _group_lines(parse_lines(_NEXT_STORY.sub("\n\n", text)))
    stories: list[Story] = []
    rejected: list[Rejected] = []
    for group in groups[:most_lines]:
        story = _read_group(group)
        if isinstance(story, Story):
            stories.append(story)
        else:
            rejected.append(story)
            beside.append(group.text)
        beside.extend(group.children)
    if _TO_JUDGE.search("\n".join(beside)):
        flags.append(TO_JUDGE)
    frames += sum(len(group.children) for group in groups)
    lines = len(groups) + max(0, frames - FRAME_LINES * len(stories) - 1)
    return StoryList(tuple(stories), tuple(rejected), lines, tuple(flags))


def extract_visible(completion: str, characters: int) -> tuple[str, list[str]]:
    """Return what stands behind the last `</think>`, in normal form, and flags for what was taken
    out of it."""
    if "<" in completion or completion.startswith("analysis"):
        completion = extract_message(completion)
    depth = 0
    end = 0
    opened = 0
    closings = 0
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
    return remove_marks(remove_tags(" ".join(plain.split())))


# ---------------------------------------------------------------------------------------- blocks


def _group_lines(lines: Sequence[Line]) -> tuple[list[_Group], int]:
    """Return what may be a story each, with what belongs to it; and the number of headers."""
    groups: list[_Group] = []
    headers = 0
    role = ""
    is_discarded = False
    for at, line in enumerate(lines):
        group = groups[-1] if groups else None
        label, value = _split_label(line.text)
        clause = find_field(label) if value and not _ROLE_OPENING.match(value) else None
        if clause:
            if group is None or not group.fields or clause in group.fields:
                group = _Group(line, "", is_discarded=is_discarded)
                groups.append(group)
            group.fields[clause] = value
        elif _opens_story(line):
            groups.append(_Group(line, line.text, is_discarded=is_discarded))
        elif group and group.is_open and _is_continuation(line, group.text):
            group.text = f"{group.text} {line.text}"
        elif group and group.fields and group.is_open and not line.opens_block and not label:
            last = [*group.fields][-1]
            group.fields[last] = f"{group.fields[last]} {line.text}"
        elif role and _STARTS_CLAUSE.match(line.text) and _SPOKEN.match(line.text):
            groups.append(_Group(line, f"As a {role}, {line.text}", is_discarded=is_discarded))
        elif group and _is_child(line, group, label, lines[at - 1]):
            group.children.append(line.text)
            group.is_open = False
        elif _is_header(lines, at):
            headers += 1
            role = _read_role(line.text)
            is_discarded = _DISCARDED.search(line.text) is not None
            if group:
                group.is_open = False
        else:
            groups.append(_Group(line, line.text))
    return groups, headers


def _opens_story(line: Line) -> bool:
    if _ROLE_OPENING.match(line.text):
        return not line.is_heading or _SPOKEN.search(line.text) is not None
    first = _BENEFIT_FIRST.match(line.text)
    if first:  # `so that I get the same stories as everyone else` is the end of one
        return _find_wish(_ROLE_OPENING.sub("", first[2], count=1)) is not None
    return _THIRD_PERSON.match(line.text) is not None


def _split_label(text: str) -> tuple[str, str]:
    labelled = _LABELLED.match(text)
    return (labelled[1], labelled[2]) if labelled else ("", "")


def _is_child(line: Line, group: _Group, label: str, before: Line) -> bool:
    """Return whether `line` belongs to the story above it: nested below it, in a list below its
    paragraph, behind a label, or on with what belongs to it already."""
    if _THOUGHT.search(line.text):
        return False
    first = group.first
    if line.is_heading and line.depth <= first.depth and not _CHILD.match(line.text):
        return False
    below = line.depth > first.depth and not line.text.endswith(":")
    if below or _CHILD.match(line.text) or (label and not line.is_heading):
        return True
    listed = line.is_item and not first.is_item
    follows = bool(group.children) and not line.opens_block
    return (
        listed
        or follows
        or (before.text.endswith(":") and line.depth >= first.depth and bool(group.children))
    )


def _is_header(lines: Sequence[Line], at: int) -> bool:
    """Return whether a line is a title: a heading, or bare words that open a paragraph right above
    a story."""
    line = lines[at]
    if len(line.text.split()) > MAX_HEADER_WORDS:
        return False
    if line.is_heading:
        return True
    bare = line.opens_block and line.text[-1] not in ".!?" and not line.is_item
    return bare and at + 1 < len(lines) and _ROLE_OPENING.match(lines[at + 1].text) is not None


def _read_role(header: str) -> str:
    """Return the role that a header may name: `Software engineer`, `As a software engineer:`."""
    text = header.strip(" :.")
    opening = _ROLE_OPENING.match(text)
    if opening:
        text = text[opening.end() :]
    text = re.sub(
        r"^(?:an?|the|for|role|persona|actor)\b:?\s+(?:an?\s+|the\s+)?",
        "",
        text,
        flags=re.IGNORECASE,
    )
    if text[1:2].islower():
        text = text[:1].lower() + text[1:]
    return text if len(extract_words(text)) <= 6 else ""


def _is_continuation(line: Line, before: str) -> bool:
    if not before or len(before) > 2000:
        return False
    clause = _STARTS_CLAUSE.match(line.text)
    if clause and not (_SPOKEN if clause[1] else _BENEFIT).search(before):
        return _ROLE_OPENING.match(before) is not None
    if line.opens_block or line.is_item:
        return False
    wrapped = line.text[:1].islower() or line.text.startswith("I ")
    return wrapped and before[-1:] not in ".!?:"


# --------------------------------------------------------------------------------------- clauses


def _read_group(group: _Group) -> Story | Rejected:
    text = group.text
    if group.fields:
        text = render_story(group.fields) or " ".join(group.fields.values())
    if group.is_discarded:
        return Rejected(group.first.number, "stands below a header that takes it back")
    return read_story(text, group.first.number, tuple(group.children))


def read_story(text: str, line: int = 1, children: tuple[str, ...] = ()) -> Story | Rejected:
    """Return the clauses of one story, or why it is none."""
    text = _PLANNING.sub("", text[:8000])
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
    return Story(text, role, want, benefit, line, tuple(flags), children)


def _parse_clauses(text: str) -> tuple[str, str, str | None] | None:
    third = _THIRD_PERSON.match(text)
    if third:
        want, benefit = _split_benefit(third[2])
        return third[1], _clean_clause(want), _clean_clause(benefit) if benefit else None
    early = None
    first = _BENEFIT_FIRST.match(text)
    if first:
        early = first[1]
        text = first[2]
    opening = _ROLE_OPENING.match(text)
    if not opening or _NO_WISH.search(text):
        return None
    after_role = text[opening.end() :]
    wish = _find_wish(after_role)
    if wish is None:
        return None
    role = after_role[: wish.start()]
    after_wish = after_role[wish.end() :]
    want, benefit = _split_benefit(after_wish)
    condition = _CONDITION.search(role)
    if condition:
        role = role[: condition.start()]
        want = f"{want.rstrip(' .')} {condition[1]}"
    if benefit is None and early is not None:
        benefit = re.sub(
            r"^in order (not )?(?:to|that)\s+|^(?:so that|to)\s+", r"\1", early, flags=re.IGNORECASE
        )
    want = _NEGATED_WISH.sub("never ", _clean_clause(want))
    return _clean_clause(role), want, None if benefit is None else _clean_clause(benefit)


def _find_wish(after_role: str) -> re.Match[str] | None:
    """Return where the role ends: at a wish in words that are known, a strong one first, else at
    the first `I` or `we` behind the role that is not followed by unwillingness."""
    before_benefit = _split_benefit(after_role[:400])[0]
    for pattern in (_WANT, _WEAK_WANT):
        for match in pattern.finditer(before_benefit):
            if match.start() or after_role[:1] == ",":
                between = before_benefit[: match.start()]
                if _SPOKEN.search(between) and not _CONDITION.search(between):
                    break
                return match
    for match in _ANY_WANT.finditer(before_benefit):
        if match.start() or after_role[:1] == ",":
            return None if _UNWILLING.match(before_benefit[match.end() :]) else match
    return None


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
