"""`gradus merge` and `gradus model`: what is written is the model that was meant, and what cannot
be is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.errors import Misuse
from tests.tiny_models import make_model, reward_model_scores

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("models")
    return lambda name: (
        folder / name if (folder / name).exists() else make_model(name, folder / name)
    )


def adapter_on(base: Path, folder: Path, scores: bool = False, targets: Any = "all-linear") -> Path:
    """An adapter that changes the model: its weights are drawn, none is zero."""
    import torch
    from peft import get_peft_model

    from trainer.config.run import LoraSettings, ModelConfig
    from trainer.models.adapters import build_lora_config
    from trainer.models.loading import load_model, load_tokenizer

    settings = ModelConfig(name=str(base))
    model = load_model(str(base), settings, "float32", scores)
    model = get_peft_model(
        model, build_lora_config(LoraSettings(r=4, targets=targets), model, scores)
    )
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora" in name:
                weight.normal_(std=0.2)
    model.save_pretrained(folder)
    load_tokenizer(str(base), settings).save_pretrained(folder)
    return folder


def merged(adapter: Path, **named: Any) -> tuple[Path, list[str]]:
    from trainer.models.merge import main

    said: list[str] = []
    told = {"out": None, "gguf": None, "dtype": "auto", **named}
    return main(adapter, told["out"], told["gguf"], told["dtype"], said.append), said


# ----------------------------------------------------------------------------------------- merging

EXPERTS = ["q_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


@pytest.mark.parametrize(
    ("architecture", "targets"),
    [
        ("qwen3", "all-linear"),
        ("gemma3_text", "all-linear"),
        ("gpt2", "all-linear"),
        ("qwen3_moe", EXPERTS),
    ],
)
def test_the_merged_model_gives_the_adapters_logits_and_not_the_bases(
    architecture: str, targets: Any, models: Any, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trainer.models.merge import compute_logits, measure_difference

    adapter = adapter_on(models(architecture), tmp_path / "final", targets=targets)
    target, said = merged(adapter)
    assert target == tmp_path / "merged"
    assert re.match(
        r"logits of the merged model differ from the adapter's by .*e-0[5-9] of the largest",
        said[0],
    )
    whole, base = (
        AutoModelForCausalLM.from_pretrained(path).eval() for path in (target, models(architecture))
    )
    assert measure_difference(compute_logits(base), compute_logits(whole)) > 0.01
    assert AutoTokenizer.from_pretrained(target)("let f").input_ids
    assert not (target / "adapter_config.json").exists()


def test_a_reward_models_adapter_is_merged_with_its_head(models: Any, tmp_path: Path) -> None:
    adapter = adapter_on(models("qwen3"), tmp_path / "final", scores=True)
    target, _ = merged(adapter, out=tmp_path / "judge")
    scores = [reward_model_scores(path, ["a"], ["b"]) for path in (adapter, target)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_a_run_folder_stands_for_the_adapter_that_it_ended_with(
    models: Any, tmp_path: Path
) -> None:
    adapter_on(models("qwen3"), tmp_path / "run" / "final")
    assert merged(tmp_path / "run")[0] == tmp_path / "run" / "merged"


def test_a_merge_that_does_not_give_the_same_logits_is_refused(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft.tuners.lora import layer

    monkeypatch.setattr(
        layer.Linear, "get_delta_weight", lambda self, adapter: self.weight.data * 0.5
    )
    with pytest.raises(
        Misuse, match=r"merged in float32, logits differ by .* and rounding explains 1e-04"
    ):
        merged(adapter_on(models("qwen3"), tmp_path / "final"))
    assert not (tmp_path / "merged").exists()


def test_what_cannot_be_merged_is_refused(models: Any, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="holds no adapter"):
        merged(tmp_path)
    adapter = adapter_on(models("qwen3"), tmp_path / "final")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(Misuse, match="taken: is there already; name another folder with --out"):
        merged(adapter, out=tmp_path / "taken")
    told = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(
        json.dumps({**told, "base_model_name_or_path": str(tmp_path / "gone")})
    )
    with pytest.raises(Misuse, match="gone: the adapter's base cannot be loaded"):
        merged(adapter)
    (adapter / "adapter_config.json").write_text("{")
    with pytest.raises(Misuse, match=r"adapter_config.json: cannot be read"):
        merged(adapter)


def test_an_adapter_of_another_model_is_refused(models: Any, tmp_path: Path) -> None:
    adapter = adapter_on(models("qwen2"), tmp_path / "final")
    told = json.loads((adapter / "adapter_config.json").read_text())
    other = {**told, "base_model_name_or_path": str(models("gpt2")), "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(other))
    with pytest.raises(Misuse, match="final: the adapter does not fit"):
        merged(adapter)


# -------------------------------------------------------------------------------------------- GGUF

CONVERTER = """
import sys
from pathlib import Path
_, model, _, target, option, kind = sys.argv
assert option == "--outtype"
{body}
"""


@pytest.fixture
def converter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Stands in for llama.cpp's program, whose command line it has."""

    def put(body: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        script = folder / "convert_hf_to_gguf.py"
        script.write_text(CONVERTER.replace("{body}", body))
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("LLAMA_CPP_DIR", raising=False)
    return put


def test_without_llama_cpp_nothing_is_merged_and_it_is_said_how_to_get_it(
    models: Any, tmp_path: Path, converter: Any
) -> None:
    adapter = adapter_on(models("qwen3"), tmp_path / "run" / "final")
    with pytest.raises(Misuse, match=r"--gguf needs llama.cpp's converter.*LLAMA_CPP_DIR"):
        merged(adapter, gguf="f16")
    assert not (tmp_path / "run" / "merged").exists()


def test_the_converter_is_given_the_merged_model_and_the_type(
    models: Any, tmp_path: Path, converter: Any
) -> None:
    converter('assert Path(model, "config.json").exists(); Path(target).write_text(kind)')
    target, said = merged(adapter_on(models("qwen3"), tmp_path / "run" / "final"), gguf="q8_0")
    assert (target / "run-q8_0.gguf").read_text() == "q8_0"
    assert said[-1].endswith("run-q8_0.gguf")


def test_a_converter_that_fails_is_quoted(models: Any, tmp_path: Path, converter: Any) -> None:
    converter('sys.exit("model type not known")')
    with pytest.raises(Misuse, match="converter failed: model type not known"):
        merged(adapter_on(models("qwen3"), tmp_path / "run" / "final"), gguf="f16")


# ---------------------------------------------------------------------- new models

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


TEXT = "let rec f x = if x = 0 then 1 else x * f (x - 1)"
VOCABULARY = 280


def asked(tmp_path: Path, **changed: Any) -> Path:
    from trainer.config.run import FreshModel
    from trainer.models.fresh import train_tokenizer

    tokenizer = train_tokenizer([TEXT], FreshModel(vocab_size=VOCABULARY))
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    told = {
        "architecture": "llama",
        "sizes": SIZES,
        "tokenizer": "tokenizer",
        **changed,
    }
    path = tmp_path / "model.yaml"
    path.write_text(
        yaml.safe_dump({name: value for name, value in told.items() if value is not None})
    )
    return path


def test_a_model_is_made_from_a_file_of_sizes_and_its_parameters_are_counted(
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trainer.models.fresh import main

    count = main(asked(tmp_path), tmp_path / "made", dry_run=False)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "made")
    assert count == sum(weight.numel() for weight in model.parameters())
    assert (model.config.model_type, model.config.hidden_size) == ("llama", 64)
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(tmp_path / "made")) <= 280
    again = main(asked(tmp_path), tmp_path / "again", dry_run=False)
    assert (again, (tmp_path / "again" / "model.safetensors").read_bytes()) == (
        count,
        (tmp_path / "made" / "model.safetensors").read_bytes(),
    )


def test_tied_parameters_count_once_and_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    from trainer.models.fresh import main

    untied = main(asked(tmp_path), tmp_path / "made", dry_run=True)
    tied = main(
        asked(tmp_path, sizes={**SIZES, "tie_word_embeddings": True}),
        tmp_path / "made",
        dry_run=True,
    )
    assert untied - tied == 64 * VOCABULARY
    assert not (tmp_path / "made").exists()


def test_the_shipped_architecture_has_seven_billion_parameters(tmp_path: Path) -> None:
    from gradus.resources import configs
    from trainer.models.fresh import main, read_architecture

    shipped = configs() / "models" / "llama_7b.yaml"
    told = read_architecture(shipped).model_dump()
    path = asked(tmp_path, **{**told, "tokenizer": "tokenizer"})
    assert 6.5e9 < main(path, tmp_path / "made", dry_run=True) < 7.5e9


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"architecture": "lama"}, "architecture: transformers has no lama; did you mean llama?"),
        ({"sizes": {"hiden_size": 3}}, "sizes.hiden_size: unknown key; did you mean hidden_size?"),
        (
            {"sizes": {**SIZES, "hidden_size": "wide"}},
            "sizes: TypeError: Field 'hidden_size' expected int",
        ),
        ({"sizes": {**SIZES, "num_attention_heads": 0}}, "sizes: "),
        (
            {"sizes": {**SIZES, "vocab_size": 20}},
            "sizes.vocab_size: 20 is less than the 280 tokens of the tokenizer",
        ),
        ({"tokenizer": None}, "tokenizer: Field required"),
        ({"seeds": 1}, "seeds: unknown key; did you mean seed?"),
        ({"tokenizer": "no/such/folder"}, "no tokenizer can be loaded from no/such/folder"),
    ],
)
def test_a_file_that_describes_no_model_is_refused(
    changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    from trainer.models.fresh import main

    with pytest.raises(Misuse, match=re.escape(says)):
        main(asked(tmp_path, **changed), tmp_path / "made", dry_run=False)
    assert not (tmp_path / "made").exists()
