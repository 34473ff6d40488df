"""What a run was asked for and with what it ran, written into its folder: enough to repeat it.
Knows no stage."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from gradus import __version__
from gradus.yaml_reader import read_mapping
from trainer.config.run import RunConfig
from trainer.runs.folder import RunFolder, append_lines

if TYPE_CHECKING:
    from trainer.config.device import Device

IMMATERIAL_SECTIONS = ("output_dir", "generation", "evaluation", "stop_when", "on_out_of_memory")
IMMATERIAL = (
    "model.device",
    "model.cpu_threads",
    "reward.urls",
    "reward.deadline_s",
    "reward.early",
    "reward.ready_timeout_s",
    "data.eval_dataset",
)
LENGTHS = ("max_steps", "num_train_epochs")
"""Options that say how far a run goes."""
IMMATERIAL_OPTIONS = (
    *LENGTHS,
    "save_strategy",
    "save_steps",
    "save_total_limit",
    "save_only_model",
    "logging_strategy",
    "logging_steps",
    "logging_dir",
    "eval_strategy",
    "eval_steps",
    "eval_on_start",
    "report_to",
    "run_name",
    "dataloader_num_workers",
    "per_device_eval_batch_size",
)
"""Options of TRL and transformers that change no step."""
PACKAGES = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")


def find_version(package: str) -> str | None:
    """Return the installed version of a distribution; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def collect_versions() -> dict[str, str | None]:
    """Return the versions of what trains."""
    return {"gradus": __version__, **{name: find_version(name) for name in PACKAGES}}


def resolve_settings(config: RunConfig, options: dict[str, object]) -> RunConfig:
    """Return the config with the options that TRL is really told."""
    trl_options = {}
    for name, value in options.items():
        if name not in config.SET_ELSEWHERE:
            trl_options[name] = value
    return config.model_copy(update={config.options_name: trl_options})


def find_changes(resolved: RunConfig, folder: RunFolder) -> dict[str, str]:
    """Return the settings in which a run differs from what is recorded in its folder, by dotted
    name with both values; none where nothing is recorded.

    Left out are those that change no step: where services are, how long to wait, what is measured,
    saved and logged, and how far to go.
    """
    if not folder.resolved_config.exists():
        return {}
    recorded = flatten(read_mapping(folder.resolved_config))
    changes = {}
    for name, value in flatten(json.loads(resolved.model_dump_json())).items():
        if name not in recorded or recorded[name] == value or _is_immaterial(name):
            continue
        changes[name] = f"{json.dumps(recorded[name])} -> {json.dumps(value)}"
    return changes


def is_length_changed(resolved: RunConfig, folder: RunFolder) -> bool:
    """Return whether the run is to go further, or less far, than what is recorded in its folder."""
    if not folder.resolved_config.exists():
        return True
    recorded = read_mapping(folder.resolved_config).get(resolved.options_name) or {}
    return any(recorded.get(name) != resolved.options.get(name) for name in LENGTHS)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by dotted names; lists are leaves."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = value
    return leaves


def _is_immaterial(name: str) -> bool:
    section, _, last = name.partition(".")
    return section in IMMATERIAL_SECTIONS or name in IMMATERIAL or last in IMMATERIAL_OPTIONS


def record_changes(folder: RunFolder, step: int, changes: Mapping[str, str]) -> None:
    """Add a line to changes.jsonl: what was changed in the run after `step`, and when."""
    line = {
        "step": step,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "changes": dict(changes),
    }
    append_lines(folder.changes, [line])


def write_settings(resolved: RunConfig, folder: RunFolder, device: Device) -> None:
    """Write the resolved config and the environment."""
    folder.resolved_config.write_text(resolved.model_dump_json(indent=1) + "\n", encoding="utf-8")
    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.kind,
        "cpu_count": os.cpu_count(),
        "versions": collect_versions(),
    }
    folder.environment.write_text(json.dumps(environment, indent=1) + "\n", encoding="utf-8")
