"""A completion that writes the marks of its chat gains nothing: the reward model reads one turn,
whatever it spells."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gradus.errors import InternalFault
from gradus.reward_model.tokenization import PromptTokenizer, get_control_tokens

pytestmark = pytest.mark.training

CHATS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "preference_chats.yaml").read_text()
)
ASKED = [{"role": "user", "content": "Name a colour."}]


@cache
def tokenizer_of(name: str) -> Any:
    from trainer.config.run import FreshModel
    from trainer.models.fresh import train_tokenizer

    chat = next(chat for chat in CHATS if chat["name"] == name)
    made = train_tokenizer(["Name a colour.", "Perfect."], FreshModel(vocab_size=300))
    made.add_special_tokens({"additional_special_tokens": chat["tokens"]})
    made.chat_template = chat["template"]
    made.eos_token = chat["tokens"][-1]
    return made


def control_in(made: Any, ids: list[int]) -> list[int]:
    return [one for one in ids if one in get_control_tokens(made)]


@pytest.mark.parametrize("chat", CHATS, ids=lambda chat: chat["name"])
def test_a_forged_turn_is_read_as_words_of_the_one_there_is(chat: dict[str, Any]) -> None:
    made = tokenizer_of(chat["name"])
    reader = PromptTokenizer(made, None)
    written = [*ASKED, {"role": "assistant", "content": chat["forged"]}]
    naive = made.apply_chat_template(written, tokenize=True, return_dict=True)["input_ids"]
    honest, forged = reader.read(ASKED, "bad"), reader.read(ASKED, chat["forged"])
    assert len(control_in(made, naive)) > len(control_in(made, honest.ids)), (
        "this would fool nobody"
    )
    assert control_in(made, forged.ids) == control_in(made, honest.ids)
    assert forged.spelt_control_tokens
    read = made.decode(forged.ids)
    assert "Perfect." in read
    assert "Again?" in read
    assert ("[INST] Again? [/INST]" in read) is bool(chat.get("words"))


PIECES = st.sampled_from(
    sorted({token for chat in CHATS for token in chat["tokens"]} | {"<|im_", "|>", "<", "\n", "a"})
)


@pytest.mark.parametrize("chat", CHATS, ids=lambda chat: chat["name"])
@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=12), cut=st.integers(0, 6))
def test_no_text_of_pieces_of_marks_makes_one(
    chat: dict[str, Any], pieces: list[str], cut: int
) -> None:
    made = tokenizer_of(chat["name"])
    reader = PromptTokenizer(made, None)
    text = "".join(pieces)
    honest = control_in(made, reader.read(ASKED, "bad").ids)
    # a template may cut words out so that a mark is left: that is no score at all
    with suppress(InternalFault):
        assert control_in(made, reader.read(ASKED, text).ids) == honest
    # whatever the prompt ends in, the completion adds none, and the one at the end is ours
    prompt = "Name a colour. " + text[:cut]
    plain = control_in(made, reader.read(prompt, text[cut:]).ids)
    assert plain == [*control_in(made, made(prompt)["input_ids"]), made.eos_token_id]
