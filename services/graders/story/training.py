"""Trains the fluency probe: a logistic regression that tells word order that people write from words out of order.

Its sentences are documentation that most machines have: docstrings of Python's standard library and of installed
packages, descriptions of Debian packages. Stories are not among them. Run where the model is; the result is
`fluency.json`, which is part of the grader. Serving needs none of this.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from services.graders.story.backends import open_backend
from services.graders.story.encoder import Encoder
from services.graders.story.model import DEFAULT_MODEL, open_model
from services.graders.story.words import word_list

SEED = 20
FEWEST_WORDS, MOST_WORDS = 4, 24
PENALTY = 0.003
"""Of the squared weights, per example; weights are of scaled features."""
GLUE = ("the", "and", "the and", "of", "for the", "and the", "to")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z ,'-]+\.?")
_DESCRIPTION = re.compile(r"^Description(?:-en)?: (.*(?:\n .*)*)", re.MULTILINE)

Floats = NDArray[np.float64]


def sentences() -> list[str]:
    """Distinct sentences of this machine's documentation, lower case, sorted."""
    found: set[str] = set()
    for text in (*_docstrings(), *_descriptions()):
        for one in _SENTENCE_END.split(" ".join(text.split())):
            if _PLAIN.fullmatch(one) and FEWEST_WORDS <= len(one.split()) <= MOST_WORDS:
                found.add(one.rstrip(".").lower())
    return sorted(found)


def _docstrings() -> Iterator[str]:
    for place in ("stdlib", "purelib"):
        for path in sorted(Path(sysconfig.get_paths()[place]).rglob("*.py")):
            try:
                tree = ast.parse(path.read_text())
            except (SyntaxError, ValueError, OSError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                    yield (ast.get_docstring(node) or "").partition("\n\n")[0]


def _descriptions() -> Iterator[str]:
    for pattern in ("lib/dpkg/status", "lib/apt/lists/*Packages", "lib/apt/lists/*i18n_Translation-en"):
        for path in sorted(Path("/var").glob(pattern)):
            for description in _DESCRIPTION.findall(path.read_text(errors="replace")):
                yield from description.split("\n .\n")


def _shuffled(words: list[str], chance: random.Random) -> list[str]:
    return chance.sample(words, len(words))


def _some_exchanged(words: list[str], chance: random.Random) -> list[str]:
    made = list(words)
    for _ in range(max(2, len(made) // 4)):
        one, other = chance.sample(range(len(made)), 2)
        made[one], made[other] = made[other], made[one]
    return made


def _keywords(words: list[str], chance: random.Random) -> list[str]:
    return _shuffled([word for word in words if word not in word_list("stop_words")], chance)


def _glued(words: list[str], chance: random.Random) -> list[str]:
    return [part for word in _keywords(words, chance) for part in (word, chance.choice(GLUE))][:-1]


def _backwards(words: list[str], chance: random.Random) -> list[str]:
    return words[::-1]


BREAKING: Sequence[Callable[[list[str], random.Random], list[str]]] = (
    _shuffled,
    _shuffled,
    _shuffled,
    _some_exchanged,
    _some_exchanged,
    _keywords,
    _glued,
    _backwards,
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
    middle, spread = features.mean(0), features.std(0) + 1e-9
    scaled = (features - middle) / spread
    signs = 2 * labels - 1

    def loss(parameters: Floats) -> tuple[float, Floats]:
        margins = signs * (scaled @ parameters[:-1] + parameters[-1])
        slopes = -signs / (1 + np.exp(np.clip(margins, -50, 50))) / len(labels)
        gradient = np.append(scaled.T @ slopes + 2 * PENALTY * parameters[:-1], slopes.sum())
        return float(np.logaddexp(0, -margins).mean() + PENALTY * (parameters[:-1] ** 2).sum()), gradient

    found = minimize(loss, np.zeros(features.shape[1] + 1), jac=True, method="L-BFGS-B").x
    weights = found[:-1] / spread
    return weights, float(found[-1] - weights @ middle)


def _inner(encoder: Encoder, texts: Sequence[str]) -> Floats:
    parts = [encoder.embed(texts[at : at + 200]).inner for at in range(0, len(texts), 200)]
    return np.concatenate(parts).astype(np.float64)


def _parsed(arguments: Iterable[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--low", type=float, default=0.001, help="share of good sentences whose score is worth nothing")
    parser.add_argument("--high", type=float, default=0.03, help="share of good sentences that lose anything")
    parser.add_argument("out", type=Path)
    return parser.parse_args(None if arguments is None else list(arguments))


def main(arguments: Iterable[str] | None = None) -> None:
    """Write the probe, and print how it does on sentences that it did not see."""
    wanted = _parsed(arguments)
    chance = random.Random(SEED)
    found = sentences()
    good = chance.sample(found, min(wanted.sentences, len(found)))
    bad = [broken(one, chance) for one in good]
    encoder = Encoder(
        open_backend("onnxruntime", "fp32", open_model(wanted.model), 1), open_model(wanted.model).tokenizer()
    )
    features = np.stack([_inner(encoder, good), _inner(encoder, bad)])
    encoder.close()
    cut = len(good) * 9 // 10
    seen = features[:, :cut].reshape(-1, features.shape[2])
    weights, bias = fitted(seen, np.repeat([1.0, 0.0], cut))
    unseen = features[:, cut:] @ weights + bias
    low, high = (float(np.quantile(unseen[0], share)) for share in (wanted.low, wanted.high))
    caught = float((unseen[1] < high).mean())
    probe = {"weights": [round(float(one), 5) for one in weights], "bias": bias, "low": low, "high": high}
    wanted.out.write_text(json.dumps(probe) + "\n")
    print(f"{cut} sentences; of the unseen broken ones {caught:.1%} score below {wanted.high:.1%} of the good ones")


if __name__ == "__main__":
    main()
