"""The pair model tells contradictions from other words for the same, with its real weights, and may
be left out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import constants
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

from gradus.errors import InternalFault, Misuse
from gradus.resources import configs
from services.graders.story.export import open_model
from services.graders.story.grader import StoryGrader
from services.graders.story.pairs import CONTRADICTED, SAME, PairModel, open_pairs
from tests.contract.test_story_grader import ASKED, submission

CASES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "story" / "meanings.yaml").read_text()
)


@pytest.fixture(scope="module")
def pairs(story_grader: StoryGrader) -> PairModel:
    assert story_grader.pairs is not None
    return story_grader.pairs


def each(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", CASES[name], ids=[case["want"] for case in CASES[name]])


@each("agreeing")
def test_a_want_that_says_the_same_does_not_contradict(
    pairs: PairModel, case: dict[str, str]
) -> None:
    [chances], _ = pairs.chances([(case["reference"], case["want"])])
    assert chances[CONTRADICTED] < chances[SAME]


@each("opposed")
def test_a_want_that_denies_or_undoes_what_was_asked_for_contradicts(
    pairs: PairModel, case: dict[str, str]
) -> None:
    [chances], _ = pairs.chances([(case["reference"], case["want"])])
    assert chances[CONTRADICTED] > chances[SAME]


@each("misread")
@pytest.mark.xfail(strict=True, reason="known weakness of the shipped weights: docs/decisions/0015")
def test_a_want_that_is_misread(pairs: PairModel, case: dict[str, Any]) -> None:
    [chances], _ = pairs.chances([(case["reference"], case["want"])])
    assert (chances[CONTRADICTED] > chances[SAME]) == case["contradicts"]


def test_chances_add_up_and_do_not_depend_on_the_company(pairs: PairModel) -> None:
    wanted = [
        ("pay by card", "pay with a card"),
        ("pay by card", "[SEP] pay \0 never " * 200),
        ("", ""),
    ]
    together, _ = pairs.chances(wanted)
    assert together.sum(1) == pytest.approx([1.0] * 3, abs=1e-5)
    for one, chances in zip(wanted, together, strict=True):
        assert pairs.chances([one])[0][0] == pytest.approx(chances, abs=1e-3)


def test_no_answer_that_contradicts_passes(story_grader: StoryGrader) -> None:
    denied = ASKED[0].replace(
        "I want to pay by card", "I want to make it impossible to pay by card"
    )
    found = story_grader.grade(submission("\n".join([denied, *ASKED[1:]])), "story/weighted@1", 0)
    assert not found.passed
    assert "meaning:contradicts" in found.flags


def test_the_grader_runs_without_a_pair_model_and_says_so(
    tmp_path: Path, story_grader: StoryGrader
) -> None:
    config = tmp_path / "story.yaml"
    config.write_text(
        (configs() / "graders" / "story.yaml").read_text().replace("pairs: shipped", "pairs: none")
    )
    without = StoryGrader(config)
    assert without.info().toolchain.endswith(
        "no pair model: contradictions, harms and villains are not measured"
    )
    assert "pairs" in story_grader.info().toolchain
    assert without.info().revision != story_grader.info().revision
    without.self_test()
    assert without.grade(submission("\n".join(ASKED)), "story/weighted@1", 0).passed
    without.encoder.close()


PAIRS = [
    ("pay by card", "never pay"),
    ("pay", "never pay by card, by cash, by card"),
    ("pay by card", "pay by card"),
]


@pytest.fixture(scope="module")
def deberta(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[float]]]:
    """A tiny model of the kind that the hub has for inference, untrained, in its layout, and what
    torch makes of PAIRS: chances of the same, contradicted, other."""
    config = DebertaV2Config(
        vocab_size=10,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        relative_attention=True,
        position_buckets=8,
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        initializer_range=1.0,
        id2label={0: "contradiction", 1: "entailment", 2: "neutral"},
    )
    torch.manual_seed(0)
    model = DebertaV2ForSequenceClassification(config).eval()
    words = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "never", "pay", "by", "card", "cash", ",")
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    folder = tmp_path_factory.mktemp("deberta")
    (folder / "onnx").mkdir()
    config.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    given = [tokenizer.encode(*pair).ids for pair in PAIRS]
    names = ["input_ids", "attention_mask"]
    example = torch.tensor([given[0], given[0]])
    torch.onnx.export(
        model,
        (example, torch.ones_like(example)),
        folder / "onnx" / "model.onnx",
        dynamo=False,
        opset_version=17,
        input_names=names,
        output_names=["logits"],
        dynamic_axes={name: {0: "texts", 1: "tokens"} for name in names},
    )
    with torch.inference_mode():
        found = [model(torch.tensor([ids])).logits.softmax(1)[0].tolist() for ids in given]
    return folder, [[same, contradicted, other] for contradicted, same, other in found]


def test_a_model_for_inference_is_read_from_a_folder(
    deberta: tuple[Path, list[list[float]]], tmp_path: Path
) -> None:
    folder, expected = deberta
    own = open_model()
    model = open_pairs(str(folder), own, "fp32", 1, 8)
    assert model is not None
    assert model.chances(PAIRS)[0].tolist() == [pytest.approx(one, abs=1e-4) for one in expected]
    assert len({round(one[SAME], 3) for one in expected}) == len(PAIRS)
    model.close()
    with pytest.raises(InternalFault, match="quantized"):
        open_pairs(str(folder), own, "int8", 1, 8)
    (tmp_path / "model.onnx").symlink_to(folder / "onnx" / "model.onnx")
    (tmp_path / "tokenizer.json").symlink_to(folder / "tokenizer.json")
    with pytest.raises(InternalFault, match="config"):
        open_pairs(str(tmp_path), own, "fp32", 1, 8)
    with pytest.raises(Misuse):
        open_pairs("no such thing", own, "fp32", 1, 8)


def test_a_model_for_inference_is_read_from_the_hub_and_named(
    deberta: tuple[Path, list[list[float]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the hub's cache on this machine: what a download would have left there."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    kept = tmp_path / "models--someone--tiny-nli"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    shutil.copytree(deberta[0], kept / "snapshots" / ("0" * 40))
    config = tmp_path / "story.yaml"
    shipped = (configs() / "graders" / "story.yaml").read_text()
    config.write_text(shipped.replace("pairs: shipped", "pairs: someone/tiny-nli"))
    grader = StoryGrader(config)
    assert grader.pairs is not None
    assert grader.info().toolchain.endswith(grader.pairs.name)
    assert "tiny-nli" in grader.info().toolchain
    assert grader.grade(submission("\n".join(ASKED)), "story/weighted@1", 0).status == "graded"
    grader.encoder.close()
    config.write_text(shipped.replace("pairs: shipped", "pairs: someone/not-there"))
    with pytest.raises(InternalFault, match="cannot be downloaded"):
        StoryGrader(config)
