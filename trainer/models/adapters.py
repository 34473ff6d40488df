"""LoRA: what gets adapters, and proof that it got them. Makes no model and trains none.

PEFT reports nothing when a target is nowhere in the model, as long as another one is. For a mixture
of experts that is the whole model but a few percent: its experts are one parameter and no module,
so usual targets pass them by.
"""

from __future__ import annotations

from typing import Any

from gradus.errors import Misuse
from trainer.config.run import LoraSettings, ModelConfig
from trainer.models.loading import bare_model


def lora_config(settings: LoraSettings, model: Any, scores: bool = False) -> Any:
    """PEFT's own object for this model. Raises Misuse for targets that are nowhere in it.

    A head that scores is trained in full and saved with the adapters: it begins as random numbers.
    """
    from peft import LoraConfig
    from transformers.pytorch_utils import Conv1D

    modules = settings.targets
    parameters = []
    if not isinstance(modules, str):
        names = [name for name, _ in model.named_parameters()]
        parameters = [target for target in modules if "." in target and _fits_any(target, names)]
        modules = [target for target in modules if target not in parameters]
    saved = [*settings.modules_to_save, *(["score"] if scores else [])]
    return LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        bias=settings.bias,
        # GPT-2's linear layers have inputs before outputs.
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        target_modules=modules,
        target_parameters=parameters or None,
        modules_to_save=saved or None,
        task_type="SEQ_CLS" if scores else "CAUSAL_LM",
    )


def _fits_any(target: str, names: list[str]) -> bool:
    return any(name == target or name.endswith(f".{target}") for name in names)


def validate_lora_targets(
    settings: LoraSettings, name: str, config: ModelConfig, scores: bool = False
) -> None:
    """Put adapters on a model without weights, which takes seconds: Misuse is raised before
    gigabytes are loaded.

    `name` is a folder or a model's name on the hub. Raises Misuse as `settle` does, and where no
    target is found.
    """
    import torch
    from peft import get_peft_model
    from peft.utils.error import NoMatchingPeftModuleError

    with torch.device("meta"):
        bare = bare_model(name, config, scores)
        try:
            _refuse_what_would_not_train(
                get_peft_model(bare, lora_config(settings, bare, scores)), settings
            )
        except NoMatchingPeftModuleError as error:
            raise Misuse(f"lora.targets: {error}") from None


def settle(model: Any, settings: LoraSettings) -> None:
    """Make sure that the adapters of a PEFT model are where they were wanted, and in float32.

    Raises Misuse for targets that are nowhere in the model, and for experts that would stay as they
    are.
    """
    _refuse_what_would_not_train(model, settings)
    if getattr(model, "is_quantized", False):
        # TRL puts adapters of quantized models into bfloat16, where the small updates of GRPO are
        # rounded away.
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()


def _refuse_what_would_not_train(model: Any, settings: LoraSettings) -> None:
    # By what PEFT made of the targets: for some architectures it puts the names of today for those
    # of before.
    wanted = model.active_peft_config.target_modules
    modules = [name.replace(".base_layer", "") for name, _ in model.named_modules()]
    lost = (
        []
        if isinstance(wanted, str)
        else sorted(one for one in wanted or () if not _fits_any(one, modules))
    )
    if lost:
        raise Misuse(
            f"lora.targets: the model has no module or parameter that is called {' or '.join(lost)}"
        )
    trained = [
        name
        for name, weight in model.named_parameters()
        if weight.requires_grad and _dimensions(weight) > 1
    ]
    frozen = sorted(_experts(model) - {_place(name) for name in trained})
    if frozen and not settings.allow_frozen_experts:
        raise Misuse(
            f"lora.targets: there is no adapter on the experts of {len(frozen)} layers ({frozen[0]}"
            " ...), so most of the model would never change. To train them, add the names of their"
            " weights to lora.targets, such as mlp.experts.gate_up_proj and mlp.experts.down_proj;"
            " to leave them as they are, set lora.allow_frozen_experts: true"
        )


def _experts(model: Any) -> set[str]:
    """Where the model has experts, such as `model.layers.0.mlp.experts`; one entry for all of a
    layer."""
    places = (_place(name) for name, weight in model.named_parameters() if _dimensions(weight) > 1)
    return {place for place in places if place is not None}


def _dimensions(weight: Any) -> int:
    """1 for a bias. DeepSpeed keeps the shape of weights that it has shared out over processes
    somewhere else."""
    return len(getattr(weight, "ds_shape", weight.shape))


def _place(name: str) -> str | None:
    parts = name.removeprefix("base_model.model.").split(".")
    return ".".join(parts[: parts.index("experts") + 1]) if "experts" in parts else None
