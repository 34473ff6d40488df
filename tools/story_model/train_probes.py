"""Trains the story grader's probes: `python -m tools.story_model.train_probes
services/graders/story`.

They are logistic regressions that tell sentences from words out of order, purposes from
absurdities, and persons from things. Their sentences are docstrings of Python's standard library
and of installed packages (for those shipped: all extras); no stories are among them. Needs the
model on this machine. The results are `fluency.json`, `sense.json` and `party.json`, which are part
of the grader.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from services.graders.story.backends import open_backend
from services.graders.story.encoder import Encoder
from services.graders.story.export import open_model
from services.graders.story.lexicon import load_word_list
from tools.story_model.pair_texts import PARTIES

SEED = 20
FEWEST_WORDS, MOST_WORDS = 4, 24
PENALTY = 0.003
"""L2 penalty on the weights per example. Weights belong to scaled features."""
KEPT = 0.2
"""Share of the words that stay when the others become random ones."""
MOST_PURPOSE_WORDS = 14
ROLES = 2500
QUANTILES = (0.001, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9)
FLUENCY_RAMP = (-3.6, -1.0)
SENSE_RAMP = (-2.0, 1.0)
PARTY_RAMP = (-2.5, 1.0)
"""Scores that are worth nothing and all; decision 0010 says what they let through."""
FILES = 6000
SENTENCES = 12_000
GLUE = ("the", "and", "the and", "of", "for the", "and the", "to")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_PURPOSE = re.compile(
    r"\b(?:so that|in order to|so you can|(?:allow|help|let)(?:s|ing)? you(?: to)?|to ensure that|"
    r"makes it (?:easy|possible) to) (.+)$"
)
_AGENT = re.compile(r"(?:er|or|ist|ant|ian|eer|man|men|woman|women|ee|ess)s?$")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z ,'-]+\.?")

Floats = NDArray[np.float64]


def sentences() -> list[str]:
    """Distinct sentences of this machine's documentation, lower case, sorted."""
    found: set[str] = set()
    for text in _docstrings():
        for one in _SENTENCE_END.split(" ".join(text.split())):
            if _PLAIN.fullmatch(one) and FEWEST_WORDS <= len(one.split()) <= MOST_WORDS:
                found.add(one.rstrip(".").lower())
    return sorted(found)


def _docstrings() -> Iterator[str]:
    """First paragraphs of docstrings, from FILES files."""
    paths = sorted(
        path
        for place in ("stdlib", "purelib")
        for path in Path(sysconfig.get_paths()[place]).rglob("*.py")
    )
    for path in random.Random(SEED).sample(paths, min(FILES, len(paths))):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # templates and tests of parsers
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                yield (ast.get_docstring(node) or "").partition("\n\n")[0]


def _shuffled(words: list[str], chance: random.Random) -> list[str]:
    return chance.sample(words, len(words))


def _some_exchanged(words: list[str], chance: random.Random) -> list[str]:
    made = list(words)
    for _ in range(max(2, len(made) // 4)):
        one, other = chance.sample(range(len(made)), 2)
        made[one], made[other] = made[other], made[one]
    return made


def _keywords(words: list[str], chance: random.Random) -> list[str]:
    return _shuffled([word for word in words if word not in load_word_list("stop_words")], chance)


def _glued(words: list[str], chance: random.Random) -> list[str]:
    return [part for word in _keywords(words, chance) for part in (word, chance.choice(GLUE))][:-1]


def _listed(words: list[str], chance: random.Random) -> list[str]:
    listed = _keywords(words, chance)
    return [f"{word}," for word in listed[:-1]] + listed[-1:]


BREAKING: Sequence[Callable[[list[str], random.Random], list[str]]] = (
    _shuffled,
    _shuffled,
    _shuffled,
    _some_exchanged,
    _some_exchanged,
    _keywords,
    _listed,
    _glued,
    lambda words, chance: words[::-1],
)


def broken(sentence: str, chance: random.Random) -> str:
    """The sentence with its words out of order, in one of several ways."""
    words = sentence.split()
    for _ in range(5):
        made = chance.choice(BREAKING)(words, chance)
        if made != words and len(made) > 1:
            return " ".join(made)
    return " ".join(words[::-1])


def fitted(features: Floats, labels: Floats) -> tuple[Floats, float]:
    """Weights and bias of the logistic regression on `features`, (n, width)."""
    middle = features.mean(0)
    spread = features.std(0) + 1e-9
    scaled = (features - middle) / spread
    signs = 2 * labels - 1

    def loss(parameters: Floats) -> tuple[float, Floats]:
        margins = signs * (scaled @ parameters[:-1] + parameters[-1])
        slopes = -signs / (1 + np.exp(np.clip(margins, -50, 50))) / len(labels)
        gradient = np.append(scaled.T @ slopes + 2 * PENALTY * parameters[:-1], slopes.sum())
        return float(
            np.logaddexp(0, -margins).mean() + PENALTY * (parameters[:-1] ** 2).sum()
        ), gradient

    found = minimize(
        loss, np.zeros(features.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 300}
    ).x
    weights = found[:-1] / spread
    return weights, float(found[-1] - weights @ middle)


def _purposes(found: Sequence[str], chance: random.Random, number: int) -> list[str]:
    """Clauses that say what something is good for, and short sentences."""
    matches = map(_PURPOSE.search, found)
    clauses = {match[1] for match in matches if match}
    short = [one for one in found if len(one.split()) <= MOST_PURPOSE_WORDS]
    told = sorted(one for one in clauses if 3 <= len(one.split()) <= MOST_PURPOSE_WORDS)
    return told + chance.sample(short, min(number, len(short)))


def _roles(words: Sequence[str], chance: random.Random) -> tuple[list[str], list[str]]:
    """Roles headed by a person, and similar ones headed by a thing."""
    things = [
        one for one in words if one.removesuffix("s") not in PARTIES and not _AGENT.search(one)
    ]

    def with_heads(heads: Sequence[str]) -> list[str]:
        """Each behind none, one or two words of any kind."""
        sizes = [chance.choice((0, 1, 1, 2)) for _ in range(ROLES)]
        return [" ".join([*chance.choices(words, k=size), chance.choice(heads)]) for size in sizes]

    return with_heads(PARTIES), with_heads(things)


def _trained(
    encoder: Encoder, good: Sequence[str], bad: Sequence[str], chance: random.Random
) -> dict[str, Any]:
    """Weights and bias from nine tenths of both. Prints scores of the unseen rest, to set `low` and
    `high` by."""
    good, bad = (chance.sample(list(texts), len(texts)) for texts in (good, bad))
    features = [_embedded(encoder, texts) for texts in (good, bad)]
    cuts = [len(texts) * 9 // 10 for texts in (good, bad)]
    labels = np.concatenate([np.ones(cuts[0]), np.zeros(cuts[1])])
    weights, bias = fitted(
        np.concatenate([part[:cut] for part, cut in zip(features, cuts, strict=True)]), labels
    )
    for name, part, cut in zip(("good", "bad"), features, cuts, strict=True):
        print(name, np.quantile(part[cut:] @ weights + bias, QUANTILES).round(2))
    return {"weights": [round(float(one), 5) for one in weights], "bias": round(bias, 5)}


def _embedded(encoder: Encoder, texts: Sequence[str]) -> Floats:
    parts = [encoder.embed(texts[at : at + 200]).inner for at in range(0, len(texts), 200)]
    return np.concatenate(parts).astype(np.float64)


def _written(path: Path, probe: dict[str, Any], low: float, high: float) -> None:
    path.write_text(json.dumps({**probe, "low": low, "high": high}) + "\n")


def main(out: Path) -> None:
    """Write the three probes; print quantiles of their scores on texts that they did not see."""
    chance = random.Random(SEED)
    found = sentences()
    model = open_model()
    encoder = Encoder(open_backend("onnxruntime", "fp32", model, 1), model.tokenizer())
    stop = load_word_list("stop_words")
    words = sorted(
        {word for one in found for word in one.split() if word.isalpha() and len(word) > 2} - stop
    )
    good = chance.sample(found, min(SENTENCES, len(found)))
    fluent = _trained(encoder, good, [broken(one, chance) for one in good], chance)
    _written(out / "fluency.json", fluent, *FLUENCY_RAMP)
    purposes = _purposes(found, chance, SENTENCES // 3)
    # Most words of meaning are exchanged for others.
    absurd = []
    for sentence in purposes:
        exchanged = [
            one if one in stop or chance.random() < KEPT else chance.choice(words)
            for one in sentence.split()
        ]
        absurd.append(" ".join(exchanged))
    _written(out / "sense.json", _trained(encoder, purposes, absurd, chance), *SENSE_RAMP)
    _written(out / "party.json", _trained(encoder, *_roles(words, chance), chance), *PARTY_RAMP)
    encoder.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
