"""Python packages that a run's settings need beyond the extra `train`. Looks for packages; loads no
model."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence

from gradus.errors import Misuse
from trainer.config.run import ModelConfig

FLASH_ATTENTION = {
    "flash_attention_2": ("flash_attn", "pip install flash-attn"),
    "flash_attention_3": ("flash_attn_interface", "pip install flash-attn-3"),
    "flash_attention_4": ("flash_attn", "pip install flash-attn-4"),
}
"""Module and install command, by the names that transformers gives to its attentions."""


def refuse_absent_packages(
    model: ModelConfig, report_to: str | Sequence[str] | None = None
) -> None:
    """Raise Misuse that names every absent package, the setting that needs it, and how to install
    it.

    `report_to`: the names of experiment trackers, as transformers has them.
    """
    if absent := [*_find_absent_packages(model), *_find_absent_trackers(report_to)]:
        raise Misuse("; ".join(absent))


def _find_absent_packages(model: ModelConfig) -> Iterator[str]:
    if model.load_in_4bit and not _is_there("bitsandbytes"):
        yield (
            "model.load_in_4bit needs bitsandbytes, which is not installed: pip install"
            " 'gradus-rl[quantized]'"
        )
    attention = model.attn_implementation or ""
    # transformers takes compiled attentions from the hub where the package kernels is.
    if attention in FLASH_ATTENTION and not _is_there("kernels"):
        module, command = FLASH_ATTENTION[attention]
        if not _is_there(module):
            yield (
                f"model.attn_implementation: {attention} needs {module}, which is not installed:"
                f" {command}"
            )


def _find_absent_trackers(report_to: str | Sequence[str] | None) -> Iterator[str]:
    from transformers.integrations.integration_utils import get_reporting_integration_callbacks

    names = [report_to] if isinstance(report_to, str) else [*(report_to or ())]
    for name in names if names != ["none"] else ():
        try:
            for callback in get_reporting_integration_callbacks(name):
                callback()
        except (RuntimeError, ImportError, ValueError) as error:
            yield f"report_to: {error}"


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
