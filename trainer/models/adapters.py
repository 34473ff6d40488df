"""LoRA: what gets adapters, and proof that it got them. Makes no model and trains none.

PEFT reports nothing when a target is nowhere in the model, as long as another one is. For a mixture
of experts that is the whole model but a few percent: its experts are one parameter and no module,
so usual targets pass them by.
"""

from __future__ import annotations

from typing import Any

from gradus.errors import Misuse
from trainer.config.run import LoraSettings, ModelConfig
from trainer.models.loading import build_bare_model


def build_lora_config(settings: LoraSettings, model: Any, scores: bool = False) -> Any:
    """PEFT's own object for this model. Raises Misuse for targets that are nowhere in it.

    A head that scores is trained in full and saved with the adapters: it begins as random numbers.
    """
    from peft import LoraConfig
    from transformers.pytorch_utils import Conv1D

    modules = settings.targets
    parameters: list[str] = []
    if not isinstance(modules, str):
        names = [name for name, _ in model.named_parameters()]
        for target in modules:
            if "." in target and _has_match(target, names):
                parameters.append(target)
        modules = [target for target in modules if target not in parameters]
    layers = None
    if settings.first_layer:
        count = model.config.get_text_config().num_hidden_layers
        if settings.first_layer >= count or parameters:
            raise Misuse(
                f"lora.first_layer: must be below {count}, the layers of this model, and goes with"
                " modules as targets only"
            )
        layers = list(range(settings.first_layer, count))
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
        layers_to_transform=layers,
        modules_to_save=saved or None,
        task_type="SEQ_CLS" if scores else "CAUSAL_LM",
    )


def _has_match(target: str, names: list[str]) -> bool:
    return any(name == target or name.endswith(f".{target}") for name in names)


def validate_lora_targets(
    settings: LoraSettings, name: str, config: ModelConfig, scores: bool = False
) -> None:
    """Put adapters on a model without weights, which takes seconds: Misuse is raised before
    gigabytes are loaded.

    `name` is a folder or a model's name on the hub. Raises Misuse as `prepare_adapters` does, and
    where no target is found.
    """
    import torch
    from peft import get_peft_model
    from peft.utils.error import NoMatchingPeftModuleError

    with torch.device("meta"):
        bare = build_bare_model(name, config, scores)
        try:
            _refuse_what_would_not_train(
                get_peft_model(bare, build_lora_config(settings, bare, scores)), settings
            )
        except NoMatchingPeftModuleError as error:
            raise Misuse(f"lora.targets: {error}") from None


def prepare_adapters(model: Any, settings: LoraSettings) -> None:
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
    targets = model.active_peft_config.target_modules
    modules = [name.replace(".base_layer", "") for name, _ in model.named_modules()]
    if isinstance(targets, str):
        lost = []
    else:
        lost = sorted(target for target in targets or () if not _has_match(target, modules))
    if lost:
        raise Misuse(
            f"lora.targets: the model has no module or parameter that is called {' or '.join(lost)}"
        )
    trained = []
    for name, weight in model.named_parameters():
        if weight.requires_grad and _count_dimensions(weight) > 1:
            trained.append(name)
    frozen = sorted(_find_experts(model) - set(map(_get_expert_layer, trained)))
    if frozen and not settings.allow_frozen_experts:
        raise Misuse(_describe_frozen(frozen, model))


def _find_experts(model: Any) -> set[str]:
    """Return where the model has experts, such as `model.layers.0.mlp.experts`; one entry for all
    of a layer."""
    layers = set()
    for name, weight in model.named_parameters():
        layer = _get_expert_layer(name)
        if layer is not None and _count_dimensions(weight) > 1:
            layers.add(layer)
    return layers


def _count_dimensions(weight: Any) -> int:
    """1 for a bias. DeepSpeed keeps the shape of weights that it has shared out over processes
    somewhere else."""
    return len(getattr(weight, "ds_shape", weight.shape))


def _get_expert_layer(name: str) -> str | None:
    parts = name.removeprefix("base_model.model.").split(".")
    if "experts" in parts:
        return ".".join(parts[: parts.index("experts") + 1])
    return None


def _describe_frozen(frozen: list[str], model: Any) -> str:
    weights = set()
    for name, parameter in model.named_parameters():
        if _count_dimensions(parameter) > 2 and _get_expert_layer(name) == frozen[0]:
            suffix = name.replace(".base_layer", "").split(".experts.", 1)[1]
            weights.add(f"{'.'.join(frozen[0].split('.')[-2:])}.{suffix}")
    suggestion = " and ".join(sorted(weights)) or "their linear layers"
    return (
        f"lora.targets: there is no adapter on the experts of {len(frozen)} layers ({frozen[0]}"
        f" ...), so most of the model would never change. To train them, add {suggestion} to"
        " lora.targets; to leave them as they are, set lora.allow_frozen_experts: true"
    )
