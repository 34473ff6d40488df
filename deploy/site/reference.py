"""Generated parts of docs/reference/: `python -m deploy.site.reference` writes them.

A part stands between `<!-- generated: KIND ARGUMENT -->` and `<!-- end -->` in its page, and the
rest of the page is written by hand. A test holds the parts equal to the code."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from typer.main import get_command

from deploy.site.fields import describe_type, join_lines, list_fields
from gradus.cli import build_application
from gradus.help_words import describe_default, describe_range, describe_value, unwrap_lines
from services.api.app import create_app
from services.api.metrics import Metrics
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from services.dashboard.prometheus import MEANINGS, METRICS
from services.worker_metrics import WorkerMetrics

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
PAGES = ("cli", "metrics", "rest", "service_settings", "training_configuration")
COMMAND = "python -m deploy.site.reference"
PART = re.compile(r"<!-- generated: ([\w ./]+) -->\n.*?<!-- end -->", re.DOTALL)
Links = Mapping[str, str]
"""Anchors of the page's sections, by the name of the class that a section shows."""


# ------------------------------------------------------------------------------------ command line


def write_help(text: str) -> str:
    """Return a help text as Markdown: paragraphs that must not be wrapped as code."""
    paragraphs = unwrap_lines(text).split("\n\n")
    fenced = [
        f"```text\n{one.removeprefix(chr(8)).strip(chr(10))}\n```" if one.startswith("\b") else one
        for one in paragraphs
    ]
    return "\n\n".join(fenced)


def list_parameters(command: Any) -> Iterator[str]:
    """Yield the tables of a command's arguments and options."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    if arguments:
        yield "| argument | meaning |\n|---|---|"
        for one in arguments:
            name = one.metavar or one.name.upper()
            yield f"| `{name}` | {join_lines(one.help or '')} |"
        yield ""
    if options:
        yield "| option | value | default | meaning |\n|---|---|---|---|"
        for option in options:
            yield describe_option(option)
        yield ""


def describe_option(option: Any) -> str:
    """Return the row of an option."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    bounds = describe_range(getattr(option, "min", None), getattr(option, "max", None))
    value = " ".join(filter(None, (describe_value(option), bounds)))
    default = "required" if option.required else describe_default(option)
    variable = f" Variable: `{option.envvar}`." if option.envvar else ""
    meaning = f"{option.help or ''}{'.' * bool(variable)}{variable}"
    return f"| {names} | {join_lines(value)} | {join_lines(default)} | {join_lines(meaning)} |"


def list_command(command: Any, name: str) -> Iterator[str]:
    """Yield the section of a command, and those of the commands below it."""
    inner = getattr(command, "commands", {})
    yield f"## {name}\n"
    yield write_help(command.help or "") + "\n"
    if inner:
        yield "| command | what it does |\n|---|---|"
        for one in inner.values():
            link = f"{name} {one.name}".replace(" ", "-")
            first = unwrap_lines(one.help or "").partition("\n\n")[0]
            yield f"| [`{name} {one.name}`](#{link}) | {join_lines(first)} |"
        yield ""
    else:
        yield from list_parameters(command)
    for one in inner.values():
        yield from list_command(one, f"{name} {one.name}")


def list_commands(argument: str, links: Links) -> Iterator[str]:
    """Yield the sections of all commands."""
    yield from list_command(get_command(build_application()), "gradus")


# -------------------------------------------------------------------------------------------- REST


def list_routes(argument: str, links: Links) -> Iterator[str]:
    """Yield the errors of all routes, and the section of each route of the API."""
    document = create_app(MemoryBroker(), ApiSettings()).openapi()
    schemas = document["components"]["schemas"]
    first = next(iter(document["paths"].values()))["post"]
    yield "Every route may answer with an error:\n"
    yield from list_responses(first, schemas, links, are_errors=True)
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            yield f"### {method.upper()} {path}\n"
            yield join_lines(route.get("description", "")) + "\n"
            yield from list_route(route, schemas, links)


def list_route(route: Mapping[str, Any], schemas: Mapping[str, Any], links: Links) -> Iterator[str]:
    """Yield parameters, body and responses of a route."""
    if route.get("parameters"):
        yield "| parameter | in | type | meaning |\n|---|---|---|---|"
        for one in route["parameters"]:
            words = describe_type(one["schema"], schemas, links)
            meaning = join_lines(one.get("description", ""))
            yield f"| `{one['name']}` | {one['in']} | {words} | {meaning} |"
        yield ""
    body = route.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        yield f"Body: [GradeRequest](#{links['GradeRequest']}), such as\n"
        yield write_json(next(iter(body["examples"].values()))["value"])
    yield from list_responses(route, schemas, links)
    good = next(iter(route["responses"].values()))
    example = good.get("content", {}).get("application/json", {}).get("example")
    if example is not None:
        yield "A response:\n"
        yield write_json(example)


def list_responses(
    route: Mapping[str, Any], schemas: Mapping[str, Any], links: Links, are_errors: bool = False
) -> Iterator[str]:
    """Yield the table of a route's responses, or of its errors."""
    yield "| status | body | meaning |\n|---|---|---|"
    for status, response in route["responses"].items():
        if ("application/problem+json" in response.get("content", {})) == are_errors:
            yield describe_response(status, response, schemas, links)
    yield ""


def describe_response(
    status: str, response: Mapping[str, Any], schemas: Mapping[str, Any], links: Links
) -> str:
    """Return the row of a response."""
    bodies = [
        f"{describe_type(content['schema'], schemas, links)} as `{media}`"
        if content.get("schema")
        else f"`{media}`"
        for media, content in response.get("content", {}).items()
    ]
    meaning = response["description"].replace("Successful Response", "done")
    return f"| {status} | {', '.join(bodies)} | {join_lines(meaning)} |"


def write_json(value: Any) -> str:
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```\n"


# ------------------------------------------------------------------------------ classes and tables


def load_object(path: str) -> Any:
    """Return the object of a module by its full name."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def list_class(argument: str, links: Links) -> Iterator[str]:
    """Yield the fields of a class."""
    yield from list_fields(load_object(argument), links)


def list_table(argument: str, links: Links) -> Iterator[str]:
    """Yield a dictionary of texts as a table."""
    yield "| option | instead |\n|---|---|"
    for name, text in load_object(argument).items():
        yield f"| `{name}` | {join_lines(text)} |"


def list_file(argument: str, links: Links) -> Iterator[str]:
    """Yield a file of the checkout as code."""
    yield f"```sh\n{(ROOT / argument).read_text(encoding='utf-8').rstrip()}\n```"


# ------------------------------------------------------------------------------ metrics and alerts


def list_registry(registry: CollectorRegistry) -> Iterator[str]:
    """Yield a row for each metric, also for those without a sample yet."""
    yield "| metric | type | labels | meaning |\n|---|---|---|---|"
    for collector in registry._collector_to_names:
        labels = ", ".join(f"`{name}`" for name in getattr(collector, "_labelnames", ()))
        for family in getattr(collector, "describe", collector.collect)():
            suffix = "_total" if family.type == "counter" else ""
            yield f"| `{family.name}{suffix}` | {family.type} | {labels} | {family.documentation} |"


def list_api_metrics(argument: str, links: Links) -> Iterator[str]:
    """Yield the metrics of the API."""
    yield from list_registry(Metrics().registry)


def list_worker_metrics(argument: str, links: Links) -> Iterator[str]:
    """Yield the metrics of workers."""
    yield from list_registry(WorkerMetrics().registry)


def list_training_metrics(argument: str, links: Links) -> Iterator[str]:
    """Yield a row for each metric of the dashboard; the first entry of some tables is a label."""
    yield "| metric | type | labels | meaning |\n|---|---|---|---|"
    for table, entries in METRICS.items():
        for name, entry in entries.items():
            has_label = table in ("computed", "labelled", "families") and entry[0] is not None
            label = f"`{entry[0]}`" if has_label else ""
            yield f"| `gradus_train_{name}` | gauge | {label} | {MEANINGS[name]} |"


def list_alerts(argument: str, links: Links) -> Iterator[str]:
    """Yield the section of each alert; the value in a summary becomes N, a label its name."""
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    for rule in alerts:
        summary = re.sub(r"\{\{[^}]*\$value[^}]*\}\}", "N", rule["annotations"]["summary"])
        summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"\1", summary)
        held = f"after {rule['for']}" if "for" in rule else "at once"
        yield f"### {rule['alert']}\n\n*{summary}.* Fires {held}.\n"
        yield f"{rule['annotations']['description']}\n\n```promql\n{rule['expr'].strip()}\n```\n"


# ------------------------------------------------------------------------------------------- pages

KINDS: dict[str, Callable[[str, Links], Iterator[str]]] = {
    "commands": list_commands,
    "routes": list_routes,
    "fields": list_class,
    "table": list_table,
    "file": list_file,
    "api metrics": list_api_metrics,
    "worker metrics": list_worker_metrics,
    "training metrics": list_training_metrics,
    "alerts": list_alerts,
}


def make_anchor(heading: str) -> str:
    """Return the anchor that forges and mkdocs give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def find_links(page: str) -> dict[str, str]:
    """Return the anchors of a page's sections, by the name of the class that each shows."""
    links: dict[str, str] = {}
    anchor = ""
    for line in page.splitlines():
        if line.startswith("#"):
            anchor = make_anchor(line.lstrip("# "))
        elif line.startswith("<!-- generated: fields "):
            links[line.split()[3].rpartition(".")[2]] = anchor
    return links


@cache
def write_part(words: str, links: tuple[tuple[str, str], ...]) -> str:
    """Return one generated part with its comments."""
    kind = next(name for name in KINDS if words.startswith(name))
    lines = KINDS[kind](words.removeprefix(kind).strip(), dict(links))
    # a table needs blank lines around it
    return f"<!-- generated: {words} -->\n\n" + "\n".join(lines).strip() + "\n\n<!-- end -->"


def write_page(page: str) -> str:
    """Return the text of a page with its generated parts made anew."""
    links = tuple(find_links(page).items())
    return PART.sub(lambda part: write_part(part[1], links), page)


def main() -> None:
    """Write the generated parts of all pages."""
    for name in PAGES:
        file = FOLDER / f"{name}.md"
        file.write_text(write_page(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
