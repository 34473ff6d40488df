"""What pages of docs/reference/ take from code that no plug-in of mkdocs reads
(docs/decisions/0022). Hook of `mkdocs.yml`."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from typer.main import get_command

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # mkdocs imports this file by its path

from gradus.cli import build_application  # noqa: E402
from services.api.app import create_app  # noqa: E402
from services.api.metrics import Metrics  # noqa: E402
from services.api.settings import ApiSettings  # noqa: E402
from services.broker.memory import MemoryBroker  # noqa: E402
from services.dashboard.prometheus import MEANINGS, METRICS  # noqa: E402
from services.worker_metrics import WorkerMetrics  # noqa: E402

OPENAPI = ROOT / "build" / "openapi.json"
"""What docs/reference/rest.md shows."""


# ------------------------------------------------------------------------------------ command line


def fence_examples(command: Any) -> Any:
    """Return the command, with the paragraphs of help texts that must not be wrapped as code."""
    text = inspect.cleandoc(command.help or "")
    command.help = re.sub(r"\x08\n((?:.+\n?)+)", r"```text\n\1\n```\n", text)
    for inner in getattr(command, "commands", {}).values():
        fence_examples(inner)
    return command


COMMAND = fence_examples(get_command(build_application()))
"""What docs/reference/cli.md shows."""


# -------------------------------------------------------------------------------------------- REST


def drop_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that may be null without that choice: neoteroi shows no type for `anyOf`."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return schema | choices[0] if len(choices) == 1 else schema


def write_openapi() -> None:
    """Write the OpenAPI document with one description for each error: problems look alike."""
    document = create_app(MemoryBroker(), ApiSettings()).openapi()
    document["info"]["title"] = "REST API"
    for methods in document["paths"].values():
        for route in methods.values():
            route.pop("security", None)  # its key would be shown as a JWT among the parameters
            for response in route["responses"].values():
                if "application/problem+json" in response.get("content", {}):
                    del response["content"]
    OPENAPI.parent.mkdir(exist_ok=True)
    OPENAPI.write_text(
        json.dumps(json.loads(json.dumps(document), object_hook=drop_null)), encoding="utf-8"
    )


# ------------------------------------------------------------------------------ metrics and alerts


def list_metrics(registry: CollectorRegistry) -> Iterator[str]:
    """Yield a row of Markdown for each metric, also for those without a sample yet."""
    for collector in registry._collector_to_names:
        labels = ", ".join(f"`{name}`" for name in getattr(collector, "_labelnames", ()))
        for family in getattr(collector, "describe", collector.collect)():
            suffix = "_total" if family.type == "counter" else ""
            yield f"| `{family.name}{suffix}` | {family.type} | {labels} | {family.documentation} |"


def list_training_metrics() -> Iterator[str]:
    """Yield a row for each metric of the dashboard; the first entry of some tables is a label."""
    for table, entries in METRICS.items():
        for name, entry in entries.items():
            has_label = table in ("computed", "labelled", "families") and entry[0] is not None
            label = f"`{entry[0]}`" if has_label else ""
            yield f"| `gradus_train_{name}` | gauge | {label} | {MEANINGS[name]} |"


def list_alerts() -> Iterator[str]:
    """Yield the section of each alert; the value in a summary becomes N, a label its name."""
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "alert" not in rule:
                continue
            summary = re.sub(r"\{\{[^}]*\$value[^}]*\}\}", "N", rule["annotations"]["summary"])
            summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"\1", summary)
            held = f"after {rule['for']}" if "for" in rule else "at once"
            yield f"### {rule['alert']}\n\n*{summary}.* Fires {held}.\n"
            yield f"{rule['annotations']['description']}\n\n```promql\n{rule['expr']}\n```\n"


def write_metrics(page: str) -> str:
    """Return the page of metrics with its lists in the place of their comments."""
    lists = {
        "api": list_metrics(Metrics().registry),
        "workers": list_metrics(WorkerMetrics().registry),
        "training": list_training_metrics(),
        "alerts": list_alerts(),
    }
    for name, lines in lists.items():
        page = page.replace(f"<!-- {name} -->", "\n".join(lines))
    return page


# ------------------------------------------------------------------------------------------ mkdocs


def on_pre_build(config: Any) -> None:
    """Write the files that plug-ins read."""
    write_openapi()


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in the page of metrics."""
    return write_metrics(markdown) if page.file.src_uri == "reference/metrics.md" else markdown
