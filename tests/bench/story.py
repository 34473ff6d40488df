"""What one completion costs the story grader, in one shuffled run: the reference algorithm, the
bare model, ours.

`make bench-full` runs it. One thread per model. The reference algorithm is GRPO-for-SCRUM's reward
of 7 July 2025 on sentence-transformers, written from its formulas: three model calls per
completion, no cache, cosines pair by pair. The floor is ONNX Runtime in fp32 on exactly the
different sentences that ours asks for, tokens ready, sorted by length, in passes cut as ours are,
and nothing else; the floor of both models has the different pairs of texts besides, in passes of
their own. Ours is the whole path of a worker's slots; every round begins with empty caches of
texts, while stems and tokens of single words are known, as they are to a worker that has run for a
while. One row is `gradus grade story` on one file: what a process spends on all rows beyond what
one spends on the first half of them, beside the floor of the texts that are new in the second half.

Then rewards: how far each backend's are from fp32's, and how many advantages within a group change
their sign.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # read when torch is loaded

import argparse
import json
import math
import random
import re
import resource
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers
import torch
from services.graders.story.backends import Backend, open_backend
from services.graders.story.export import export, find_weights
from services.graders.story.model import ExportedModel
from services.graders.story.pairs import PairModel

from gradus.contract import Graded, StorySubmission
from gradus.errors import Fault
from gradus.resources import configs
from services.graders.base.batching import Queued, make_passes
from services.graders.story import fact_builder
from services.graders.story.encoder import (
    MAX_PASS_TOKENS,
    Encoder,
    TokenizerLike,
    build_batch,
)
from services.graders.story.grader import StoryGrader
from services.local_grading import grade_in_order
from tests.bench.ocaml import machine, median_of, ratios
from tests.bench.story_answers import G, groups

SLOTS = 64
RUBRIC = "story/weighted@1"
WEIGHTS = (0.15, 0.20, 0.30, 0.10, 0.10, 0.20, 0.15)
CONFIGURATIONS = (
    ("onnxruntime", "fp32"),
    ("sentence-transformers", "fp32"),
    ("sentence-transformers", "bf16"),
)
ENCODER, BOTH = "onnxruntime fp32", "onnxruntime fp32, pair model"
EQUAL = 1e-9
"""Advantages closer to zero than this are of a group whose rewards are all the same."""
FELT = 0.1
"""In standard deviations of the group: an advantage below hardly moves a policy."""

Groups = list[list[StorySubmission]]
Rewards = list[list[float]]


# ---------------------------------------------------------------------- the reference algorithm

_STORY = re.compile(
    r"^\s*(?:(?:\*{1,2}|-|•|–|\d+[.)])\s*)*as an?\b[^,]+,?\s*i want\b.+?,?\s*so that\b.+?\.?$",
    re.IGNORECASE,
)


class Reference:
    """Rewards as the reference system computes them, at its cost."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._model = sentence_transformers.SentenceTransformer(str(find_weights()), device="cpu")

    def __call__(self, asked: Groups) -> Rewards:
        rewards = []
        for group in asked:
            rewards.append([self._reward(one.completion, one.task.references) for one in group])
        return rewards

    def _reward(self, completion: str, issues: Sequence[str]) -> float:
        lines = [
            line.strip()
            for line in re.split("</think>", completion, maxsplit=1)[-1].splitlines()
            if line.strip()
        ]
        clean = [line.lower().rstrip(string.punctuation.replace("'", "")) for line in lines]
        clauses = [
            (("as a" in line) + ("i want" in line) + ("so that" in line)) / 3 for line in clean
        ]
        usual = statistics.mean(len(issue.split()) for issue in issues)
        lengths = [max(0.0, 1 - ((len(line.split()) - usual) / usual) ** 2) for line in clean]
        parts = (
            statistics.mean(bool(_STORY.match(line)) for line in clean),
            statistics.mean(clauses),
            self._coverage(issues, lines),
            math.exp(-abs(len(lines) - len(issues)) / 2),
            statistics.mean(lengths),
            self._redundancy(clean),
            statistics.mean(clauses) - 1,
        )
        return sum(weight * part for weight, part in zip(WEIGHTS, parts, strict=True))

    def _coverage(self, issues: Sequence[str], lines: Sequence[str]) -> float:
        cosines = sentence_transformers.util.cos_sim(self._embedded(issues), self._embedded(lines))
        best = []
        for issue in range(len(issues)):
            line = int(cosines[issue].argmax().item())
            best.append(cosines[issue, line].item())
            cosines[:, line] = -1.0
        return statistics.mean(best)

    def _redundancy(self, clean: Sequence[str]) -> float:
        vectors = self._embedded(clean)
        pairs = ((one, other) for one in range(len(clean)) for other in range(one + 1, len(clean)))
        alike = sum(
            sentence_transformers.util.cos_sim(vectors[one], vectors[other]).item() > 0.8
            for one, other in pairs
        )
        return -alike / len(clean)

    def _embedded(self, texts: Sequence[str]) -> torch.Tensor:
        return self._model.encode(list(texts), convert_to_tensor=True, show_progress_bar=False)


# ---------------------------------------------------------------------- floor and ours


class Listening:
    """An encoder's tokenizer that keeps what was asked for: the floor is measured on that."""

    def __init__(self, tokenizer: TokenizerLike) -> None:
        self._tokenizer = tokenizer
        self.asked: dict[str, list[int]] = {}

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        made = self._tokenizer.ids(texts)
        self.asked.update(zip(texts, made, strict=True))
        return made


class Ours:
    """The whole path of a worker's slots: read, embed, match, check, score; no text is known at the
    start."""

    def __init__(
        self,
        grader: StoryGrader,
        backend: Backend,
        model: ExportedModel,
        pairs: PairModel | None = None,
    ) -> None:
        self._grader = grader
        self._backend = backend
        self._tokenizer = Listening(model.tokenizer())
        self._of_pairs = Listening(pairs) if pairs else None
        self.model_of_pairs = pairs

    def __call__(self, asked: Groups) -> Rewards:
        fact_builder._build_spec.cache_clear()
        self._tokenizer.asked.clear()
        self._grader.encoder = Encoder(self._backend, self._tokenizer)
        self._grader.pairs = self.model_of_pairs
        if self.model_of_pairs and self._of_pairs:
            self._of_pairs.asked.clear()
            self.model_of_pairs._encoder = Encoder(self.model_of_pairs, self._of_pairs)
        try:
            found = [
                _reward(result)
                for result in grade_in_order(self._grader, sum(asked, []), RUBRIC, SLOTS)
            ]
        finally:
            self._grader.encoder.close()
            if self.model_of_pairs:
                self.model_of_pairs.close()
        return [found[at : at + G] for at in range(0, len(found), G)]

    @property
    def sentences(self) -> dict[str, list[int]]:
        """What the encoder was asked for last, with its tokens."""
        return dict(self._tokenizer.asked)

    @property
    def pairs(self) -> dict[str, list[int]]:
        """What the pair model was asked for last, with its tokens."""
        return dict(self._of_pairs.asked) if self._of_pairs else {}


def _reward(result: Any) -> float:
    assert isinstance(result, Graded), result
    return result.reward


class Floor:
    """Models on the different texts that each of them was asked for, and nothing else."""

    def __init__(self, *given: tuple[Backend | PairModel, Iterable[list[int]]]) -> None:
        self._passes = []
        for model, texts in given:
            wanted = [Queued(ids, Future()) for ids in texts]
            for a_pass in make_passes(wanted, MAX_PASS_TOKENS):
                self._passes.append((model, build_batch([one.ids for one in a_pass])))

    def __call__(self, asked: Groups) -> Rewards:
        for model, (ids, mask) in self._passes:
            model.encode(ids, mask)
        return []


def cpu_of_grade_story(asked: Groups, config: Path) -> float:
    """CPU seconds of `gradus grade story`, as a process of its own, on all rows of `asked` in one
    file."""
    rows = "".join(one.model_dump_json() + "\n" for group in asked for one in group)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "gradus", "grade", "story", "-", "--config", str(config)]
    subprocess.run(command, input=rows.encode(), stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def grade_story(
    rounds: int, asked: Groups, ours: Mapping[str, Ours], backend: Backend
) -> dict[str, dict[str, float]]:
    """CPU milliseconds per completion of `gradus grade story` and its ratios to the floor of the
    same texts, by what reads them: the `encoder` alone, or `both`."""
    half = len(asked) // 2
    found = {}
    for name, contestant in ours.items():
        contestant(asked[:half])
        old_sentences, old_pairs = contestant.sentences, contestant.pairs
        contestant(asked)
        new = [ids for text, ids in contestant.sentences.items() if text not in old_sentences]
        given: list[tuple[Backend | PairModel, Iterable[list[int]]]] = [(backend, new)]
        if contestant.model_of_pairs:
            pairs = [ids for text, ids in contestant.pairs.items() if text not in old_pairs]
            given.append((contestant.model_of_pairs, pairs))
        floor = Floor(*given)
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "story.yaml"
            text = (configs() / "graders" / "story.yaml").read_text()
            config.write_text(
                text if contestant.model_of_pairs else text.replace("pairs: shipped", "pairs: none")
            )
            taken = []
            for _ in range(rounds):
                floor_ms = measured(floor, asked[half:])["cpu_ms"]
                spent_s = cpu_of_grade_story(asked, config) - cpu_of_grade_story(
                    asked[:half], config
                )
                taken.append((spent_s * 1e3 / sum(map(len, asked[half:])), floor_ms))
        of_floor = sorted(ms / floor_ms for ms, floor_ms in taken)
        found[name] = {
            "cpu_ms": statistics.median(ms for ms, _ in taken),
            "floor_ms": statistics.median(floor_ms for _, floor_ms in taken),
            "median": statistics.median(of_floor),
            "min": of_floor[0],
            "max": of_floor[-1],
        }
    return found


# --------------------------------------------------------------------------------------- measuring


def measured(contestant: Callable[[Groups], Rewards], asked: Groups) -> dict[str, float]:
    number = sum(map(len, asked))
    cpu_s = time.process_time()
    wall_s = time.perf_counter()
    contestant(asked)
    return {
        "cpu_ms": (time.process_time() - cpu_s) * 1e3 / number,
        "wall_ms": (time.perf_counter() - wall_s) * 1e3 / number,
    }


def opened(model: ExportedModel) -> dict[str, Backend]:
    """The backends that start here, by name; what is missing is said."""
    found = {}
    for name, precision in CONFIGURATIONS:
        try:
            found[f"{name} {precision}"] = open_backend(name, precision, model, 1)
        except Fault as fault:
            print(f"left out: {name} {precision}: {fault.message}", file=sys.stderr)
    return found


def agreement(exact: Rewards, other: Rewards) -> dict[str, float]:
    """How far `other` is from `exact`, (groups, G) rewards each."""
    one, two = np.array(exact), np.array(other)
    advantages = _advantages(one)
    signs = [
        np.where(np.abs(each) < EQUAL, 0, np.sign(each)) for each in (advantages, _advantages(two))
    ]
    changed = np.abs(advantages[signs[0] != signs[1]])
    return {
        "largest": float(np.abs(one - two).max()),
        "mean": float(np.abs(one - two).mean()),
        "advantages": int(one.size),
        "signs": int(changed.size),
        "signs_felt": int((changed > FELT).sum()),
        "largest_changed": float(changed.max(initial=0.0)),
    }


def _advantages(rewards: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As GRPO has them, in standard deviations of their group."""
    return (rewards - rewards.mean(axis=1, keepdims=True)) / (
        rewards.std(axis=1, keepdims=True) + 1e-4
    )


def run(rounds: int, number: int, shared: float, judged: int) -> dict[str, Any]:
    model = export()
    grader = StoryGrader()
    backends = opened(model)
    asked = groups(number, shared)
    ours = {name: Ours(grader, backend, model) for name, backend in backends.items()}
    exact = ours[ENCODER]
    both = ours[BOTH] = Ours(grader, backends[ENCODER], model, PairModel(model, 1, 64))
    exact(asked[:1])
    rewards = {name: contestant(groups(judged)) for name, contestant in ours.items()}
    exact(asked)
    both(asked)
    encoder = backends[ENCODER]
    contestants: dict[str, Callable[[Groups], Rewards]] = {
        "reference": Reference(),
        "floor": Floor((encoder, exact.sentences.values())),
        "floor of both": Floor(
            (encoder, both.sentences.values()), (both.model_of_pairs, both.pairs.values())
        ),
        **ours,
    }
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    for index in range(rounds):
        for name in random.Random(index).sample(list(contestants), len(contestants)):
            samples[name].append(measured(contestants[name], asked))
        print(f"round {index + 1} of {rounds} done", file=sys.stderr, flush=True)
    one_process = grade_story(rounds, asked, {ENCODER: exact, BOTH: both}, encoder)
    exact(asked)
    both(asked)
    stories = sum(one.completion.count(" so that ") for group in asked for one in group)
    return {
        "machine": machine(grader.info().toolchain),
        "rounds": rounds,
        "shared": shared,
        "completions": number * G,
        "stories": stories,
        "sentences": len(exact.sentences),
        "tokens": sum(map(len, exact.sentences.values())),
        "pairs": len(both.pairs),
        "pair_tokens": sum(map(len, both.pairs.values())),
        "rows": {name: median_of(each) for name, each in samples.items()},
        "ratios": ratios(
            samples,
            [(name, _floor_of(name)) for name in ours] + [("reference", name) for name in ours],
        ),
        "grade story": one_process,
        "agreement": {
            name: agreement(rewards[ENCODER if _floor_of(name) == "floor" else BOTH], each)
            for name, each in rewards.items()
        },
    }


def _floor_of(name: str) -> str:
    return "floor of both" if name.endswith("pair model") else "floor"


# ------------------------------------------------------------------------------------------ report


def title(name: str) -> str:
    known = {
        "reference": "the reference algorithm on sentence-transformers, fp32",
        "floor": "floor: ONNX Runtime fp32 on the different sentences, nothing else",
        "floor of both": (
            "floor of both models, fp32: the different sentences and the different pairs, nothing"
            " else"
        ),
    }
    return known.get(
        name,
        f"ours, {name}" if _floor_of(name) == "floor of both" else f"ours, {name}, `pairs: none`",
    )


def table(report: dict[str, Any]) -> str:
    lines = [
        (
            f"{report['completions']} completions in groups of {G}, {report['stories']} stories,"
            f" {report['sentences']} different texts of"
            f" {report['tokens'] / report['sentences']:.1f} tokens, {report['pairs']} different"
            f" pairs of {report['pair_tokens'] / report['pairs']:.1f}; share of stories said in the"
            f" same words: {report['shared']:g}. {report['rounds']} shuffled rounds, medians."
            f" {report['machine']}."
        ),
        "",
        "| contestant | CPU ms per completion | wall ms | CPU / floor | reference / it |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, row in report["rows"].items():
        floor, reference = (
            report["ratios"].get(pair)
            for pair in (f"{name} / {_floor_of(name)}", f"reference / {name}")
        )
        shown = [
            f"{one['median']:.2f} ({one['min']:.2f} to {one['max']:.2f})" if one else ""
            for one in (floor, reference)
        ]
        lines.append(
            f"| {title(name)} | {row['cpu_ms']:.2f} | {row['wall_ms']:.2f} | {shown[0]} |"
            f" {shown[1]} |"
        )
    lines += [
        "",
        "| `gradus grade story`, one file | CPU ms per completion | floor | CPU / floor |",
        "|---|--:|--:|--:|",
    ]
    for name, one in report["grade story"].items():
        spread = f"{one['median']:.2f} ({one['min']:.2f} to {one['max']:.2f})"
        lines.append(f"| {title(name)} | {one['cpu_ms']:.2f} | {one['floor_ms']:.2f} | {spread} |")
    lines += [
        "",
        (
            "| rewards beside ONNX Runtime fp32 | largest difference | mean | advantages | signs"
            f" that change | of advantages over {FELT:g} | largest advantage that changes |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, one in report["agreement"].items():
        numbers = f"{one['largest']:.6f} | {one['mean']:.6f} | {one['advantages']} | {one['signs']}"
        numbers += f" | {one['signs_felt']} | {one['largest_changed']:.3f}"
        lines.append(f"| {title(name)} | {numbers} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument(
        "--judged", type=int, default=100, help="groups whose rewards are compared between backends"
    )
    parser.add_argument(
        "--shared",
        type=float,
        default=0.0,
        help="share of stories that a group says in the same words",
    )
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    chosen = parser.parse_args()
    report = run(chosen.rounds, chosen.groups, chosen.shared, chosen.judged)
    if chosen.json:
        chosen.json.write_text(json.dumps(report, indent=1))
    print(table(report))


if __name__ == "__main__":
    main()
