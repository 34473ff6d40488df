"""The optional reader: what it takes from a match, and what it says when it cannot be had. Its own sense is not tested.

The model is a tiny one with random weights, made here: no model of inference is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gradus.contract import StorySubmission
from gradus.errors import InternalFault, Misuse
from gradus.resources import configs
from gradus.tasks.story import StoryTask
from services.graders.story.entailment import Entailment
from services.graders.story.grader import StoryGrader
from services.graders.story.judging import asked_by, judged
from services.graders.story.reading import read
from tests.rubrics import rubrics_of

ASKED = ("As a shopper, I want to pay by card.", "As an owner, I want to see the sales of the day.")
LABELS = {0: "CONTRADICTION", 1: "ENTAILMENT", 2: "NEUTRAL"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("inference")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "pay", "card", "see", "sales"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    shape = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        id2label=LABELS,
        label2id={label: number for number, label in LABELS.items()},
    )
    transformers.BertForSequenceClassification(shape).save_pretrained(folder)
    return folder


class Denies:
    """Takes every second pair for a contradiction."""

    def contradiction(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        return np.arange(len(pairs)) % 2.0


def test_probabilities_come_in_order_for_any_number_of_pairs(tiny: Path) -> None:
    reader = Entailment(str(tiny))
    pairs = [(f"pay {'by ' * (number % 5)}card", "see sales") for number in range(70)]
    found = reader.contradiction(pairs)
    assert found.shape == (70,)
    assert ((found > 0) & (found < 1)).all()
    assert reader.contradiction(pairs[3:4])[0] == pytest.approx(found[3], abs=1e-5)
    assert reader.contradiction([]).shape == (0,)


def test_what_is_taken_for_a_contradiction_is_no_answer(story_grader: StoryGrader) -> None:
    answer = read("\n".join(ASKED), story_grader.config.limits.reading)
    task = StoryTask(references=ASKED)
    usual = judged(answer, asked_by(task), story_grader.config.gate.gate, story_grader.encoder).facts
    denied = judged(answer, asked_by(task), story_grader.config.gate.gate, story_grader.encoder, Denies()).facts
    assert (usual.matched, usual.answered) == (pytest.approx(2.0), 2)
    assert (denied.matched, denied.answered) == (pytest.approx(1.0), 1)


def test_a_grader_with_a_reader_asks_it_and_has_another_revision(
    story_grader: StoryGrader, tiny: Path, tmp_path: Path
) -> None:
    text = (configs() / "graders" / "story.yaml").read_text()
    config = tmp_path / "story.yaml"
    config.write_text(text.replace("entailment: null", f"entailment: {tiny}"))
    grader = StoryGrader(config)
    submission = StorySubmission.model_validate({"id": "a", "completion": ASKED[0], "task": {"references": ASKED[:1]}})
    default = rubrics_of("story")[0]
    assert 0 < grader.grade(submission, default, 0).reward < story_grader.grade(submission, default, 0).reward
    assert grader.info().revision != story_grader.info().revision
    grader.encoder.close()


def test_a_model_that_cannot_be_had_is_a_fault_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InternalFault, match="nowhere"):
        Entailment(str(tmp_path / "nowhere"))


def test_a_model_without_a_label_for_contradiction_is_misuse(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    for path in tiny.iterdir():
        text = path.read_bytes()
        (folder / path.name).write_bytes(
            text.replace(b"CONTRADICTION", b"SOMETHING") if path.name == "config.json" else text
        )
    with pytest.raises(Misuse, match="SOMETHING, ENTAILMENT"):
        Entailment(str(folder))
