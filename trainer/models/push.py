"""Uploading a trained model to a hub: weights, tokenizer and a model card, and nothing else of its
run.

A run folder holds tests, completions and settings with paths. What is uploaded is therefore a list
of kinds of files, not a folder.
"""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from trainer.runs.folder import RunFolder

UPLOADED = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "preprocessor_config.json",
    "processor_config.json",
)
"""Names of files that make a model; `training_args.bin` and PEFT's card name paths."""
CARD = "README.md"


@dataclass(frozen=True, slots=True)
class Upload:
    """What goes to the hub."""

    folder: Path
    files: list[str]
    card: str
    skipped: list[str]
    """Files of the folder that stay here."""


def prepare_upload(path: Path) -> Upload:
    """Return what to upload of a run, or of a folder with a model. Raises Misuse where there is no
    whole model, or where an adapter's base model is a folder of this machine."""
    run = RunFolder(path)
    folder = run.final if run.final.is_dir() else path
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    files = []
    skipped = []
    for name in names:
        if any(fnmatch.fnmatch(name, pattern) for pattern in UPLOADED):
            files.append(name)
        else:
            skipped.append(name)
    if not any(name.endswith(".safetensors") for name in files):
        raise Misuse(
            f"{path}: has no trained model, neither final/*.safetensors nor *.safetensors; name the"
            " folder of a finished run"
        )
    base = _find_base_model(folder)
    if base is not None and Path(base).exists():
        raise Misuse(
            f"{folder / 'adapter_config.json'}: the base model is a folder of this machine, {base},"
            f" which nobody else has; upload a whole model: gradus merge {path}"
        )
    return Upload(folder, files, render_card(run, base), skipped)


def _find_base_model(folder: Path) -> str | None:
    """Return the base model's name of an adapter; None for a whole model."""
    config = folder / "adapter_config.json"
    if not config.is_file():
        return None
    name = json.loads(config.read_text()).get("base_model_name_or_path")
    return str(name) if name else None


def render_card(run: RunFolder, base: str | None) -> str:
    """Return the model card: what was trained, by which rewards, and what was measured."""
    settings: dict[str, Any] = {}
    if run.resolved_config.is_file():
        settings = json.loads(run.resolved_config.read_text())
    stage = settings.get("stage")
    name = settings.get("model", {}).get("name", "")
    start = base or (name if name and not Path(name).exists() else None)
    head = ["---", "library_name: " + ("peft" if base else "transformers")]
    if start and not start.startswith("fresh:"):
        head.append(f"base_model: {start}")
    head += ["tags:", "- gradus", *([f"- {stage}"] if stage else []), "---", ""]
    lines = ["# Model trained with Gradus", ""]
    if stage:
        lines.append(f"- Stage: {stage}")
    if start:
        lines.append(f"- Trained from: {start}")
    reward = settings.get("reward", {})
    if reward.get("grader"):
        rubric = reward.get("rubric") or "the default rubric"
        lines.append(f"- Rewards: the grader `{reward['grader']}`, {rubric}")
    lines += _describe_gain(run)
    return "\n".join([*head, *lines, ""])


def _describe_gain(run: RunFolder) -> list[str]:
    """Return lines about the held-out tasks before and after, where they were measured."""
    if not run.comparison.is_file():
        return []
    lines = []
    for comparison in json.loads(run.comparison.read_text())["comparisons"]:
        rate = comparison["pass_rate"]
        change = rate["change"]
        lines.append(
            f"- Held-out tasks ({comparison['tasks']}, {comparison['mode']}): passed"
            f" {rate['before']:.1%} before, {rate['after']:.1%} after; change"
            f" {change['value']:+.1%} ({change['low']:+.1%} to {change['high']:+.1%})"
        )
    return lines


def push(upload: Upload, name: str, *, is_private: bool) -> str:
    """Upload to the repository, which is made if it is not there; return its address.

    Raises Misuse where the hub refuses or cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi()
    operations = [CommitOperationAdd(CARD, upload.card.encode())]
    for file in upload.files:
        operations.append(CommitOperationAdd(file, upload.folder / file))
    try:
        made = api.create_repo(name, private=is_private, exist_ok=True)
        api.create_commit(
            made.repo_id, operations, commit_message="Upload a model trained with Gradus"
        )
    except HFValidationError as error:
        raise Misuse(f"{name}: not the name of a repository: {error}") from None
    except HfHubHTTPError as error:
        raise Misuse(
            f"{name}: the hub refused: {str(error).splitlines()[0]}; sign in with `hf auth login`,"
            " or set HF_TOKEN to a token that may write"
        ) from None
    except Exception as error:  # noqa: BLE001 - of whichever HTTP client the hub's library uses
        raise Misuse(
            f"{api.endpoint}: the upload failed: {error}; run the same command again"
        ) from None
    return str(made)
