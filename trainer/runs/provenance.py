"""What a run was asked for and with what it ran, written into its folder: enough to repeat it.
Knows no stage."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from gradus import __version__
from trainer.config.run import RunConfig
from trainer.runs.folder import RunFolder

if TYPE_CHECKING:
    from trainer.config.device import Device

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


def write_settings(
    config: RunConfig, options: dict[str, object], folder: RunFolder, device: Device
) -> None:
    """The resolved config, with the options that TRL is really told, and the environment."""
    trl_options = {}
    for name, value in options.items():
        if name not in config.SET_ELSEWHERE:
            trl_options[name] = value
    resolved = config.model_copy(update={config.options_name: trl_options})
    folder.resolved_config.write_text(resolved.model_dump_json(indent=1) + "\n", encoding="utf-8")
    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.kind,
        "cpu_count": os.cpu_count(),
        "versions": collect_versions(),
    }
    folder.environment.write_text(json.dumps(environment, indent=1) + "\n", encoding="utf-8")
