"""Makes the labelled pairs that the pair model learns from: shipped story tasks and `stories.txt`,
both our own texts.

A pair is two texts and what the second is to the first: the same, denied, or something else. Three
kinds of pairs: want and want; want and `so that` benefit; `as` role and want. Both sides are
changed, so that neither single words nor their places tell the label: two denials agree, a double
denial agrees, one denial contradicts.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from services.graders.story.parser import Story, read_story

SAME, DENIED, OTHER = 0, 1, 2
PARTIES = sorted(Path(__file__).with_name("actor_nouns.txt").read_text().split())
"""Heads of roles: someone, or a body, that can want something."""


class Pair(NamedTuple):
    first: str
    second: str
    label: int


@dataclass(frozen=True, slots=True)
class Example:
    """A story with what is the same and what is not."""

    group: int
    """Examples of one group are of one sprint."""
    deeds: frozenset[str]
    """Verbs that begin one of `wants`."""
    roles: tuple[str, ...]
    wants: tuple[str, ...]
    """Each in its own words; the first is the reference's."""
    contradictions: tuple[str, ...]
    details: tuple[str, ...]
    """Wants in which one thing is wrong."""
    benefits: tuple[str, ...]
    harms: tuple[str, ...]


def _lines(text: str) -> tuple[str, ...]:
    return tuple(
        " ".join(part.split()) for part in " ".join(text.split()).split("|") if part.strip()
    )


def _sides(group: str) -> tuple[list[str], list[str]]:
    left, _, right = group.partition("-")
    return left.split("/"), right.split("/")


# {v} bare verb and the rest, {g} gerund and the rest, {o} object, {d} participle, {t} what stands
# behind the object.
WAYS = _lines("""
    to {v}|to {v}|to {v}|to {v}|{v}|to be able to {v}|the ability to {v}|a way to {v}|the option to {v}|
    the chance to {v}|{g}|{g} to be possible|
    it to be easy to {v}|to be allowed to {v}|the system to let me {v}|the app to let me {v}|
    to make it possible to {v}|to make sure that I can {v}|
    a feature to {v}|support for {g}|a button to {v}|to {v} easily|to quickly {v}|to {v} whenever I like|
    to {v} without any trouble|to {v} myself|
    people to be able to {v}|to introduce the option of {g}|to have a tool that can {v}|to never be kept from {g}|
    nothing to stop me from {g}|
    not to be prevented from {g}|to no longer be unable to {v}|no obstacle to {g}|to remove all limits on {g}|
    to lift the ban on {g}
""")  # noqa: E501
PASSIVE = _lines(
    "{o} to be {d} {t}|to have {o} {d} {t}|{o} {d} {t}|that {o} can be {d} {t}|to get {o} {d} {t}"
)
DENIALS = _lines("""
    to not {v}|not to {v}|to never {v}|to no longer {v}|never to {v}|to stop {g}|to be prevented from {g}|
    to prevent people from {g}|
    to prevent anyone from {g}|to prevent {g}|to forbid {g}|to ban {g}|a ban on {g}|to prohibit users from {g}|
    to block every attempt to {v}|
    no one to be able to {v}|nobody to be able to {v}|nobody can {v}|to keep everyone from {g}|to be unable to {v}|
    to lose the ability to {v}|
    to disable {g}|to remove the ability to {v}|to take away the option to {v}|the function to {v} to be deleted|
    to refuse to {v}|
    to make sure that no one can {v}|to ensure no user may {v}|to make it impossible to {v}|
    it to be impossible to {v}|{g} to be impossible|
    {g} to be forbidden|it to be forbidden to {v}|{g} to be blocked|{g} to be switched off|to {v} to be disabled|
    to have {g} turned off|to skip {g}|
    to fail to {v}|to be barred from {g}|no way to {v}|no option to {v}|the end of {g}|to do without {g}|
    to be spared {g}|to go on without {g}|
    to reject any request to {v}|to punish people for {g}|to warn people off {g}|to discourage {g}|
    to discourage everyone from {g}|to get rid of {g}|
    to get rid of the option to {v}|to rule out {g}|to rule out that anyone can {v}|to oppose {g}|
    the opposite of {g}|to withdraw the right to {v}|
    to undo the feature that lets people {v}|to not have to {v}|to {v} under no circumstances|
    to scare users away from {g}|it to be hard to {v}|
    to make {g} painful|to hold people back from {g}|to see to it that I cannot {v}|don't want to {v}|to {v} no more|
    to postpone {g} forever|{g} being made a thing of the past|{g} is not supported|to {v}, but this is not possible|
    the button to {v} taken out|the option of {g} removed again later|to hide the button to {v}|to bypass {g}
""")  # noqa: E501
PASSIVE_DENIALS = _lines("""
    {o} to never be {d} {t}|{o} not to be {d} {t}|that {o} cannot be {d} {t}|no {o} to be {d} {t}|
    to keep {o} from being {d} {t}|
    that {o} is not {d} {t}|{o} {d} {t} by nobody|{o} being {d} {t} is not supported|to leave {o} not {d} {t}
""")  # noqa: E501
THINGS = _lines("""
    {w}|{w}|{w}|to have {w}|to get {w}|to be given {w}|there to be {w}|to receive {w}|access to {w}|to rely on {w}|
    {w} to be available
""")  # noqa: E501
NO_THINGS = _lines("""
    no {w}|to do without {w}|to be denied {w}|{w} to be taken away|never to get {w}|to lose {w}|to be kept from {w}|
    to get rid of {w}|{w} to be forbidden|
    {w} to be impossible|to prevent {w}|nobody to get {w}|to remove {w}|to rule out {w}|to discourage {w}|
    {w} to be switched off|to oppose {w}|
    the opposite of {w}|to hide {w} from everyone|to make {w} impossible|{w} is not supported
""")  # noqa: E501
VAGUE = _lines("""
    to manage {n}|to handle {n}|to have {n}|to do something with {n}|to work with {n}|to know about {n}|
    to deal with {n}|to use the system|better {n}|
    to improve {n}|to see {n}|things to be easier|good {n}|to get information|to think about {n}|to be supported|
    {n} to be better|to discuss {n}|
    a concept for {n}|to research {n}|to look into {n}|a report on how to {v}|to talk about {g}|
    to find out whether we could {v}|a meeting about {g}|us to talk over {g}|a study of {g}|
    someone to look into how to {v}|to weigh up whether to {v}|a plan for {g}|a workshop on {g}|
    an investigation into {g}|people to debate {g}|to think through how to {v}
""")  # noqa: E501
TAILS = _lines("""
    that nobody has answered|that were never collected|that I no longer need|that are not ready|
    without anyone having to phone|without asking anybody|
    that have not been paid|which failed|instead of on paper|that cannot be reached|before it is too late|
    without leaving my desk|
    even if there is no signal|that do not belong to me|unless I say otherwise|without losing what was there|
    not only on Mondays|even when nobody is there
""")  # noqa: E501
SYNONYMS = [
    group.split("/")
    for group in _lines("""
    see/view/look at/be shown|add/enter/put in/record|create/make/set up/build|delete/remove/erase|
    change/edit/modify/update/adjust|
    find/look up/locate/search for|know/be told/find out/learn|send/submit/forward/pass on|get/receive/obtain|
    choose/select/pick|
    book/reserve|cancel/call off|message/notification/alert|photo/picture/image|phone/mobile/smartphone|
    list/overview|report/summary|
    customer/client|user/person|show/display|check/verify/review/inspect|approve/sign off/accept|
    reject/turn down/refuse|track/follow/monitor|
    upload/send in/attach|download/save a copy of|compare/put side by side|sort/order/rank|filter/narrow down|
    mark/flag/label|assign/give/allocate|
    share/make available|free/available/vacant|late/overdue|old/previous/earlier|new/fresh|date/day|price/cost|
    document/file|appointment/visit/slot|
    error/mistake/fault|allow/permit/let|hide/conceal|define/set/configure|start/begin|stop/end/halt|every/each|
    before/ahead of|store/keep/save|
    name/title|warn/alert|remind/prompt|report/tell about/notify of|plan/schedule|limit/restrict/cap|skip/jump over|
    block/lock out|mute/silence
""")  # noqa: E501
]
OPPOSITES = [
    _sides(group)
    for group in _lines("""
    add/create/make/build/record-delete/remove/discard/wipe|show/display/see/view/reveal-hide/conceal/cover up|
    allow/permit/let-forbid/block/stop/ban|
    approve/accept/confirm-reject/turn down/refuse|open/unlock-close/lock/seal|start/begin/launch-stop/halt/end|
    publish/share/post-withdraw/keep private|
    find/locate/look up-lose/ignore/lose track of|save/store/keep/restore-lose/discard/throw away|
    send/deliver/submit-withhold/keep back|
    get/receive/obtain/hear-miss/go without/be refused|
    know/learn/understand-be kept in the dark about/misunderstand/forget|
    check/verify/review/test/confirm-skip/ignore/leave unchecked|edit/change/update/correct-freeze/leave as it is|
    fix/repair-break/damage|
    book/reserve/schedule-cancel/call off|invite/include/welcome-exclude/turn away|
    assign/give/grant-take away/revoke|enable/activate-disable/switch off|
    import/upload/attach-strip out/remove|connect/link/combine/merge-disconnect/separate|
    protect/secure/encrypt-leak/expose/endanger|
    track/monitor/watch/follow-lose sight of/stop watching|
    notify/inform/tell/alert/warn/remind-leave uninformed/mislead|report/note/log-hush up/cover up|
    pay-leave unpaid|compare/sort/filter-mix up/jumble|choose/select/pick-be stuck with/have no say in|
    help/support-hinder/obstruct|
    improve/speed up-worsen/slow down|limit/restrict-leave unlimited/remove every limit on|mark/flag-leave unmarked|
    explain-obscure|mute-amplify
""")  # noqa: E501
]
VILLAINS = _lines("""
    burglar|thief|attacker|fraudster|vandal|spammer|saboteur|smuggler|pickpocket|stalker|competitor|bot|blackmailer|
    terrorist|crook|
    bystander who does not care|chief executive|president|king|prince|astronaut|pirate|ghost|
    tourist from another planet|shareholder|celebrity|minister|
    intruder|con artist|forger|gangster|robber|arsonist|extortionist|impostor|poacher|looter|cheat|spy|bully|
    swindler|traitor|emperor|chairman of the board|
    film star|dinosaur|pop singer|billionaire|managing director|prime minister|convict|mobster|troublemaker|
    rival company|founder of the company
""")  # noqa: E501
USUAL_BENEFITS = _lines("""
    it is better|I am happy|my life is easier|I save time|I save money|it is quicker|I can do my job|work is easier|
    I can work well|I am more productive|everything goes well|I have what I need|it is useful|I am satisfied|
    it helps me|things improve|I get more done|users are happy|the team works better|the quality is higher|
    we are successful|the process is smoother|it is convenient|I make fewer errors|value is created|I feel good|
    we reach our goals|I can do what I want|I benefit from it|it works
""")  # noqa: E501
"""Benefits of whatever is done."""
HARMS = _lines("""
    people get hurt|everything takes longer|nobody can work|we lose all data|customers leave|money is wasted|
    I lose my job|it gets worse|everybody is angry|
    secrets leak out|errors spread|nobody trusts us|the company goes bankrupt|patients die|I am robbed|it is chaos|
    our work is destroyed|criminals profit|
    users are deceived|costs explode|the law is broken|it never works|people are misled|I am lost|
    children are in danger|
    an innocent person is punished|mistakes are hidden from us|the machine stops working|strangers read my letters|
    the wrong person gets it|we all get ill|
    I am woken every night|everyone gets lost|somebody is poisoned|we have to start all over again|
    all the effort was for nothing|nobody finds anything|
    my account is emptied|the team falls apart|everything breaks down|nobody is told|rumours spread|we are sued|
    people are shut out|the town is flooded|
    animals suffer|I am embarrassed in public|lies are believed|a rival takes over|people quarrel|
    fewer people get what they need|nobody can rely on it|
    more mistakes are made|the work piles up|my rights are taken away|trust is lost|the building burns down|
    nobody notices the danger|
    everyone waits for hours|our plans fail|I regret it|damage is done|people are cheated|
    the data end up in the wrong hands|nobody is helped
""")  # noqa: E501
SIBLINGS = [
    group.split("/")
    for group in _lines("""
    PDF/HTML/CSV/spreadsheet/image/text file|python/java/javascript/rust|day/week/month/year|minute/hour|
    e-mail/text message/letter/phone call|client/server|
    photo/video/song/sound|map/timeline/table/chart|phone/tablet/laptop/watch|customer/supplier/colleague|
    teacher/pupil/parent|buyer/seller|author/reader|
    name/address/price/colour|weight/height/age|Monday/Friday|morning/evening|city/country/street|
    car/bike/bus/train|two/five/ten/twenty|invoice/contract/receipt|
    door/window|doctor/nurse/patient|comment/rating/photo|password/user name|file/folder|publisher/author/editor|
    article/book/film|server/printer/database
    """)  # noqa: E501
]
"""Words of one kind: one in the place of another makes a wrong detail."""
ANTONYMS = [
    group.split("/")
    for group in _lines("""
    before/after|first/last|open/close|idle/active|more/less|with/without|old/new|early/late|high/low|import/export|
    from/to|inside/outside|public/private|
    free/paid|always/never|present/absent|overdue/on time|same/different|automatic/manual|visible/hidden|
    allowed/forbidden|valid/invalid|start/end|
    increase/decrease|online/offline|known/unknown|limited/unlimited|everybody/nobody|everyone/no one|
    all/none of the|stops/starts|missing/complete|
    large/small|fast/slow|full/empty|broken/working|dangerous/harmless|sold/unsold|near/far from|when/unless|
    lock/unlock|show/hide|approve/reject|accept/decline|grant/refuse|enable/disable|win/lose|enter/leave
    """)  # noqa: E501
]
"""Words that turn a want round wherever they stand in it."""
_FLIPS = [
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"\bneed not\b", "must"),
        (r"\b(?:do not|does not|don't|doesn't) ", ""),
        (r"\b(?:nobody|no one)\b", "everybody"),
        (r"\bnothing\b", "everything"),
        (r"\bno (?=[a-z]+)", "every "),
        (r"\bnever\b", "always"),
        (r"\b(is|are|was|were) not\b", r"\1"),
        (r"\bcan\b", "cannot"),
        (r"\b(is|are)\b", r"\1 never"),
        (r"\bwithout\b", "with"),
        (r"\b(?:fewer|less)\b", "more"),
        (r"\bon time\b|\bin time\b|\bat once\b|\bquickly\b|\bsoon\b", "too late"),
        (r"\b(i|we|they) (?=[a-z]+)", r"\1 never "),
    )
]
_MENDS = [
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"^I am ", "I am never "),
        (r"\b(?:everybody|everyone)\b", "nobody"),
        (r"\b(?:somebody|someone)\b", "no one"),
        (r"\b(is|are|was|were) (?!not)", r"\1 not "),
        (r"^(I|we) (?!am|do|can|cannot|never)", r"\1 do not "),
        (r"^([a-z]+[^s]s) (?!not)", r"no \1 "),
        (r"^(a|the) ([a-z]+) (?=[a-z]+s )", r"no \2 "),
    )
]
AVERTED = _lines("""
    it does not happen that {b}|we avoid that {b}|I need not fear that {b}|it is less likely that {b}|
    it is prevented that {b}|the risk that {b} is gone|it never comes so far that {b}|nobody can say that {b}
""")  # noqa: E501
_PREPOSITIONS = frozenset(
    _lines("""
    in|on|at|by|for|with|from|to|of|without|before|after|during|near|through|when|while|if|until|because|as|per|via|
    that|which|who|where|so|and|but|between|against|into|over|under|about|inside|outside|instead
    """)
)
_NO_DEEDS = frozenset(
    _lines("""
    a|an|the|no|that|not|never|one|two|what|how|where|my|bigger|cheaper|expenses|guidance|live|usage|turnover|current|
    kilograms|medicines|reports|photos|maps|articles|labels|stickers|drugs|amounts|alerts|formats|headcount|food|fair|
    long|late|automatic|remote|reviews|spoken|litres|alternative
    """)
)
"""Words that begin a want that is a thing."""
_IRREGULAR = {
    pair.partition("/")[0]: pair.partition("/")[2]
    for pair in _lines("""
    see/seen|send/sent|get/got|know/known|find/found|make/made|choose/chosen|tell/told|give/given|take/taken|keep/kept|
    leave/left|hide/hidden|put/put|set/set|read/read|write/written|build/built|buy/bought|pay/paid|show/shown|hold/held|
    let/let|lose/lost|bring/brought|draw/drawn|split/split|shut/shut|freeze/frozen|forget/forgotten|begin/begun|do/done|
    have/had|hear/heard|say/said|sell/sold|understand/understood|run/run|cut/cut|learn/learned|meet/met|win/won|
    break/broken|go/gone|sign/signed|skip/skipped|film/filmed
    """)
}


def _doubled(verb: str) -> str:
    short = re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb) or verb in (
        "submit",
        "permit",
        "refer",
        "forget",
        "begin",
        "admit",
    )
    return verb + verb[-1] if short else verb


def _gerund(verb: str) -> str:
    if verb == "be":
        return "being"
    return (
        verb[:-1] if verb.endswith("e") and not verb.endswith(("ee", "oe")) else _doubled(verb)
    ) + "ing"


def _participle(verb: str) -> str:
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb.endswith("e"):
        return verb + "d"
    return (
        verb[:-1] + "ied"
        if verb.endswith("y") and verb[-2:-1] not in "aeiou"
        else _doubled(verb) + "ed"
    )


class Writer:
    """Says wants in other ways; draws from `chance`."""

    def __init__(self, chance: random.Random, verbs: frozenset[str]) -> None:
        self.chance = chance
        self.verbs = verbs
        self._same: dict[str, list[str]] = {}
        for group in SYNONYMS:
            for word in group:
                self._same.setdefault(word, []).extend(other for other in group if other != word)
        self._siblings = {word: group for group in SIBLINGS for word in group}
        self._antonym = {
            word: other for one, two in ANTONYMS for word, other in ((one, two), (two, one))
        }
        self._opposed: dict[str, list[str]] = {}
        for left, right in OPPOSITES:
            for one, others in ((left, right), (right, left)):
                for word in one:
                    self._opposed.setdefault(word, []).extend(others)

    def is_deed(self, want: str) -> bool:
        return want.partition(" ")[0].lower() in self.verbs

    def said(self, want: str, *, denied: bool = False) -> str:
        """`want` in some other form."""
        if not self.is_deed(want):
            return self.chance.choice(NO_THINGS if denied else THINGS).format(w=want)
        verb, _, rest = want.partition(" ")
        words = rest.split()
        cut = next((at for at, word in enumerate(words) if word in _PREPOSITIONS), len(words))
        thing, tail = " ".join(words[:cut]), " ".join(words[cut:])
        passive = thing and " " not in verb and self.chance.random() < 0.15
        ways = PASSIVE if passive else WAYS
        if denied:
            ways = PASSIVE_DENIALS if passive else DENIALS
        gerund = " ".join([_gerund(verb), *words])
        made = self.chance.choice(ways).format(
            v=want, g=gerund, o=thing, d=_participle(verb), t=tail
        )
        return " ".join(made.split())

    def reworded(self, want: str) -> str:
        """`want` with some words exchanged for others that mean the same."""
        words = want.split()
        for at, word in enumerate(words):
            if word in self._same and self.chance.random() < 0.5:
                words[at] = self.chance.choice(self._same[word])
        return " ".join(
            word for word in words if word not in ("the", "my", "a") or self.chance.random() < 0.8
        )

    def undone(self, want: str) -> str | None:
        verb, _, rest = want.partition(" ")
        return (
            f"{self.chance.choice(self._opposed[verb])} {rest}" if verb in self._opposed else None
        )

    def turned(self, want: str) -> str | None:
        """`want` with a word in it exchanged for its opposite."""
        words = want.split()
        places = [at for at, word in enumerate(words) if word in self._antonym]
        if not places:
            return None
        at = self.chance.choice(places)
        return " ".join([*words[:at], self._antonym[words[at]], *words[at + 1 :]])

    def cut(self, want: str) -> str:
        words = want.split()
        return " ".join(words[: max(1, self.chance.randint(len(words) // 3, len(words) // 2))])

    def vague(self, want: str) -> str:
        nouns = [word for word in want.split()[1:] if len(word) > 4] or ["things"]
        verb, _, rest = want.partition(" ")
        gerund = f"{_gerund(verb)} {rest}" if self.is_deed(want) else want
        return self.chance.choice(VAGUE).format(
            n=self.chance.choice(nouns), v=want if self.is_deed(want) else f"have {want}", g=gerund
        )

    def changed(self, want: str, other: str) -> str:
        """`want` with one word exchanged for one of its kind, or some of its longer words for ones
        of `other`."""
        for at, word in enumerate(words := want.split()):
            if word in self._siblings and self.chance.random() < 0.7:
                words[at] = self.chance.choice([one for one in self._siblings[word] if one != word])
                return " ".join(words)
        words = want.split()
        theirs = [word for word in other.split()[1:] if len(word) > 3]
        places = [at for at, word in enumerate(words) if at and len(word) > 3]
        if not theirs or not places:
            return other
        for at in self.chance.sample(places, min(len(places), self.chance.randint(1, 2))):
            words[at] = self.chance.choice(theirs)
        return " ".join(words)

    def harmed(self, benefit: str) -> str:
        """The opposite of `benefit`, or some harm."""
        order = self.chance.sample(_FLIPS, len(_FLIPS)) if self.chance.random() < 0.3 else _FLIPS
        for pattern, instead in order:
            flipped, times = pattern.subn(instead, benefit, count=1)
            if times and self.chance.random() < 0.8:
                return flipped
        if self.chance.random() < 0.3:
            return self.averted(benefit)
        return self.chance.choice(HARMS)

    def averted(self, harm: str) -> str:
        """That `harm` does not come about."""
        for pattern, instead in _MENDS:
            mended, times = pattern.subn(instead, harm, count=1)
            if times and self.chance.random() < 0.7:
                return mended
        return self.chance.choice(AVERTED).format(b=harm)


def examples(stories: Path, tasks: Path, without: frozenset[str]) -> list[Example]:
    """Examples of both files, without the tasks whose ids begin with one of `without`."""
    found = []
    for group, line in enumerate(tasks.read_text().splitlines()):
        row = json.loads(line)
        if row["id"].startswith(tuple(without)):
            continue
        solution = row["solution"].splitlines()
        if len(solution) != len(row["references"]):
            continue  # which says what again is not known
        for pair in zip(row["references"], solution, strict=True):
            read = [one for one in map(read_story, pair) if isinstance(one, Story)]
            found.append(
                Example(
                    group,
                    frozenset(
                        one.want.partition(" ")[0] for one in read if f" to {one.want}" in one.text
                    ),
                    tuple(one.role for one in read),
                    tuple(one.want for one in read),
                    (),
                    (),
                    tuple(one.benefit for one in read if one.benefit),
                    (),
                )
            )
    for number, line in enumerate(
        line for line in stories.read_text().splitlines() if not line.startswith("#")
    ):
        roles, want, same, contradictions, details, benefits, harms = (
            tuple(field.split(" / ")) for field in line.split(" | ")
        )
        wants = want + same
        deeds = frozenset(one.partition(" ")[0] for one in wants) - _NO_DEEDS
        found.append(
            Example(
                1000 + number // 5, deeds, roles, wants, contradictions, details, benefits, harms
            )
        )
    return found


def pairs(known: Sequence[Example], number: int, seed: int) -> list[Pair]:
    """`number` labelled pairs."""
    chance = random.Random(seed)
    writer = Writer(chance, frozenset[str]().union(*(example.deeds for example in known)))
    makers = (_of_wants, _of_benefits, _of_roles)
    return [
        chance.choices(makers, (14, 5, 2))[0](chance.choice(known), known, writer)
        for _ in range(number)
    ]


def _of_wants(example: Example, known: Sequence[Example], writer: Writer) -> Pair:
    chance = writer.chance
    first = chance.choice(example.wants)
    second = chance.choice(example.wants)
    near = [one for one in known if one.group == example.group and one is not example] or known
    stranger = chance.choice(chance.choice(near if chance.random() < 0.7 else known).wants)
    if chance.random() < 0.15:
        tail = chance.choice(TAILS)
        first, second = f"{first} {tail}", f"{second} {tail}"
    if chance.random() < 0.4:
        second = writer.reworded(second)
    plain = first if chance.random() < 0.7 else writer.said(first)
    kind = chance.choices(
        range(10), (34, 5, 22, 9 if not example.contradictions else 22, 3, 16, 8, 7, 4, 4)
    )[0]
    if kind == 0:
        pair = Pair(plain, writer.said(second) if chance.random() < 0.6 else second, SAME)
    elif kind == 1:
        pair = Pair(writer.said(first, denied=True), writer.said(second, denied=True), SAME)
    elif kind == 2:
        pair = Pair(plain, writer.said(second, denied=True), DENIED)
    elif kind == 3:
        turned = writer.turned(second)
        if turned and chance.random() < 0.4:
            pair = Pair(plain, turned, DENIED)
        elif example.contradictions and chance.random() < 0.5:
            said = chance.choice(example.contradictions)
            pair = Pair(plain, writer.reworded(said) if chance.random() < 0.4 else said, DENIED)
        else:
            undone = writer.undone(second)
            pair = Pair(
                plain, writer.said(undone) if undone else writer.said(second, denied=True), DENIED
            )
    elif kind == 4:
        undone = writer.undone(second)
        pair = (
            Pair(plain, writer.said(undone, denied=True), SAME)
            if undone
            else Pair(plain, plain, SAME)
        )
    elif kind == 5:
        detail = (
            chance.choice(example.details)
            if example.details and chance.random() < 0.7
            else writer.changed(second, stranger)
        )
        pair = Pair(plain, detail if chance.random() < 0.6 else writer.said(detail), OTHER)
    elif kind == 6:
        pair = Pair(plain, writer.vague(second), OTHER)
    elif kind == 7:
        pair = Pair(plain, stranger, OTHER)
    elif kind == 8:
        pair = Pair(plain, writer.said(stranger, denied=True), OTHER)
    else:
        pair = Pair(plain, writer.cut(second), OTHER)
    return Pair(pair.second, pair.first, pair.label) if chance.random() < 0.3 else pair


def _of_benefits(example: Example, known: Sequence[Example], writer: Writer) -> Pair:
    chance = writer.chance
    if not example.benefits:
        return _of_wants(example, known, writer)
    want, benefit = chance.choice(example.wants), chance.choice(example.benefits)
    kind = chance.choices((SAME, DENIED, OTHER), (4, 4, 3))[0]
    if kind == DENIED:
        own = example.harms and chance.random() < 0.5
        benefit = chance.choice(example.harms) if own else writer.harmed(benefit)
    elif kind == OTHER:
        near = [
            one
            for one in known
            if one.group == example.group and one is not example and one.benefits
        ]
        strangers = (
            near if near and chance.random() < 0.5 else [one for one in known if one.benefits]
        )
        usual = chance.random() < 0.3
        benefit = chance.choice(USUAL_BENEFITS if usual else chance.choice(strangers).benefits)
    elif example.harms and chance.random() < 0.35:
        benefit = writer.averted(chance.choice(example.harms))
    return Pair(want, f"so that {benefit}", kind)


def _of_roles(example: Example, known: Sequence[Example], writer: Writer) -> Pair:
    chance = writer.chance
    want, role = chance.choice(example.wants), chance.choice(example.roles)
    kind = chance.choices((SAME, DENIED, OTHER), (4, 2, 2))[0]
    if kind == DENIED:
        role = chance.choice(VILLAINS)
    elif kind == OTHER:
        role = chance.choice(PARTIES if chance.random() < 0.7 else chance.choice(known).roles)
    return Pair(f"as {role}", want, kind)
