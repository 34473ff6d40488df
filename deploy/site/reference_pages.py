"""Reference pages of the documentation site, generated from code at each build. Hook of
`mkdocs.yml`."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from typer.main import get_command

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # mkdocs imports this file by its path

from gradus.cli import application  # noqa: E402
from gradus.tasks import TASKS  # noqa: E402
from services.api.app import create_app  # noqa: E402
from services.api.metrics import Metrics  # noqa: E402
from services.api.settings import PREFIX, ApiSettings  # noqa: E402
from services.broker.memory import MemoryBroker  # noqa: E402
from services.dashboard.prometheus import MEANINGS, METRICS  # noqa: E402
from services.graders.ocaml.config import OcamlConfig  # noqa: E402
from services.graders.preference.config import PreferenceConfig  # noqa: E402
from services.graders.rust.config import RustConfig  # noqa: E402
from services.graders.story.config import StoryConfig  # noqa: E402
from services.worker_metrics import WorkerMetrics  # noqa: E402
from trainer.config.run import RunConfig, TrainConfig  # noqa: E402
from trainer.config.stages import DpoStage, PretrainStage, RewardStage, SftStage  # noqa: E402

GRADER_CONFIGS = {
    "ocaml": OcamlConfig,
    "rust": RustConfig,
    "story": StoryConfig,
    "preference": PreferenceConfig,
}
STAGES: Mapping[str, type[RunConfig]] = {
    "grpo` and `rloo": TrainConfig,
    "sft": SftStage,
    "dpo": DpoStage,
    "reward": RewardStage,
    "pretrain": PretrainStage,
}
COPIED = {
    "changelog.md": ("CHANGELOG.md", "](docs/", "]("),
    "security.md": ("SECURITY.md", "](docs/", "]("),
    "reference/images.md": ("deploy/docker/README.md", "](../../docs/", "](../"),
}
"""Pages of the site that are kept elsewhere in the repository: file, and what their links to pages
begin with there and here."""

Row = tuple[str, str, str, str]


# ------------------------------------------------------------------------------------------ tables


def _cell(text: str) -> str:
    """One line of Markdown that breaks no table and holds no tag outside of code."""
    line = " ".join(text.split()).replace("|", "\\|")
    return re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], line)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = list(headings)
    yield from ("", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns))
    for row in rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"
    yield ""


def _schema_type(schema: Mapping[str, Any]) -> str:
    """A JSON Schema in a few words: type, choices and bounds."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.replace('.', '').lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if parts := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(dict.fromkeys(map(_schema_type, parts)))
    word = schema.get("type", "any")
    if word == "array":
        inner = schema.get("items") or {}
        return f"list of {_schema_type(inner)}" if inner else "list"
    if word == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"object of {_schema_type(values)}"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]:g}" for key, sign in signs.items() if key in schema]
    return " ".join([word, *bounds])


# ---------------------------------------------------------------------- settings and keys


def field_docstrings(kind: type[BaseModel]) -> dict[str, str]:
    """The strings below the fields of a model and its bases. pydantic's `use_attribute_docstrings`
    reads the same, but when the class is made, which every start of the command line would pay
    for."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if (
            not issubclass(base, BaseModel)
            or base is BaseModel
            or base.__module__.startswith("pydantic")
        ):
            continue
        [definition] = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in zip(definition.body, definition.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
            ):
                value = text.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[field.target.id] = inspect.cleandoc(value.value)
    return found


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models_in(part)


def keys_of(kind: type[BaseModel], prefix: str = "") -> Iterator[Row]:
    """Rows of key, type, default and meaning; keys of inner sections are dotted, those of lists
    have `[]`."""
    texts = field_docstrings(kind)
    schema = kind.model_json_schema()["properties"]
    for name, field in kind.model_fields.items():
        inner = next(_models_in(field.annotation), None)
        words = schema[name]
        text = texts.get(name) or field.description or ""
        key = f"{prefix}{name}"
        if inner is None:
            default = "required" if field.is_required() else f"`{_json(words.get('default'))}`"
            yield f"`{key}`", _schema_type(words), default, text
            continue
        is_list = "list" in str(field.annotation) or "tuple" in str(field.annotation)
        if text or type(None) in getattr(field.annotation, "__args__", ()):
            default = "required" if field.is_required() else "`[]`" if is_list else "a section"
            default = "`null`" if field.default is None else default
            yield (
                f"`{key}`",
                "list of sections" if is_list else "section",
                default,
                text or inner.__doc__ or "",
            )
        yield from keys_of(inner, f"{key}{'[]' if is_list else ''}.")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


KEY, SETTING = ("key", "type", "default", "meaning"), ("variable", "type", "default", "meaning")


def training_page() -> str:
    """Every key of the YAML file of a training run, by stage."""
    lines = [
        "# Training configuration",
        "",
        (
            "Every key of the file that `gradus train FILE.yaml` reads. On the command line a key"
            " is `--reward.deadline_s 30`. Options of TRL and transformers go under the section"
            " named after the stage, by their own names; bare `--learning_rate 1e-6` sets one"
            " there. Unknown keys are refused. [How to train](../training.md) has examples."
        ),
    ]
    for stage, kind in STAGES.items():
        lines += [
            "",
            f"## `stage: {stage}`",
            "",
            inspect.getdoc(kind) or "",
            *_table(KEY, keys_of(kind)),
        ]
    elsewhere = {
        name: where for kind in STAGES.values() for name, where in kind.SET_ELSEWHERE.items()
    }
    lines += [
        "",
        "## Options of TRL that are set elsewhere",
        *_table(("option", "instead"), elsewhere.items()),
    ]
    return "\n".join(lines)


def services_page() -> str:
    """The variables of an API process, the settings of Compose, and the keys of each grader's
    configuration."""
    rows = ((f"`{PREFIX}{key.strip('`').upper()}`", *rest) for key, *rest in keys_of(ApiSettings))
    lines = [
        "# Service settings",
        "",
        "## API process",
        "",
        (
            "Environment variables of `gradus serve`. A variable that starts with `GRADUS_API_` and"
            " is none of these is refused; `GRADUS_API_KEY` belongs to clients."
        ),
        *_table(SETTING, rows),
        "## Docker Compose",
        "",
        (
            "The file `.env` beside `docker-compose.yml`; this is `.env.example`. Lines that are"
            " commented out show defaults."
        ),
        "",
        "```sh",
        (ROOT / ".env.example").read_text(encoding="utf-8").strip(),
        "```",
    ]
    for name, kind in GRADER_CONFIGS.items():
        where = f"configs/graders/{name}.yaml"
        about = f"The keys of `{where}`; `gradus worker {name} --config FILE` reads another file."
        lines += ["", f"## Grader `{name}`", "", about, *_table(KEY, keys_of(kind))]
    return "\n".join(lines)


# ---------------------------------------------------------------------- command line


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if command.hidden:
        return
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    for name, one in (inner or {}).items():
        yield from _commands(one, f"{path} {name}")


def _parameter(one: Any) -> Row:
    is_argument = one.param_type_name == "argument"
    kind = one.type_descriptor.annotation
    names = (
        (one.metavar or one.name.upper())
        if is_argument
        else ", ".join([*one.opts, *one.secondary_opts])
    )
    default = (
        one.show_default
        if isinstance(one.show_default, str)
        else ""
        if one.default is None
        else str(one.default)
    )
    text = one.help or ""
    if one.envvar:
        text += f" (variable `{one.envvar}`)"
    return (
        f"`{names}`",
        getattr(kind, "__name__", "text"),
        "required" if one.required else default,
        text,
    )


def _help(text: str) -> Iterator[str]:
    """Paragraphs as they are; those that Typer must not wrap, after `\\b`, as code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            yield from ("", "```text", paragraph.replace("\b", "").strip("\n"), "```")
        else:
            yield from ("", paragraph)


def cli_page() -> str:
    """Every command with its arguments and options."""
    lines = [
        "# Command line",
        "",
        "`gradus COMMAND --help` prints the same. [Exit codes](results.md#exit-codes).",
    ]
    for path, command in _commands(get_command(application()), "gradus"):
        arguments = [
            one.metavar or one.name.upper()
            for one in command.params
            if one.param_type_name == "argument"
        ]
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        lines += ["", f"## {path}", "", "```sh", " ".join([path, *arguments, "[OPTIONS]"]), "```"]
        lines += [
            *_help(command.help or ""),
            *_table(("option", "type", "default", "meaning"), map(_parameter, shown)),
        ]
    return "\n".join(lines)


# -------------------------------------------------------------------------------------------- REST


def _content(content: Mapping[str, Any]) -> Iterator[str]:
    """The media types of a body with their schemas, and one example."""
    for media, about in content.items():
        schema = about.get("schema", {})
        yield from ("", f"`{media}`: {_schema_type(schema)}" if schema else f"`{media}`")
        examples = about.get("examples")
        example = about.get("example", next(iter(examples.values()))["value"] if examples else None)
        if example is not None:
            is_text = isinstance(example, str)
            yield from ("", "```text" if is_text else "```json")
            yield from (
                example if is_text else json.dumps(example, indent=1, ensure_ascii=False),
                "```",
            )


def rest_page() -> str:
    """Every route and schema of the OpenAPI document."""
    document = create_app(MemoryBroker(), ApiSettings()).openapi()
    lines = ["# REST API", "", document["info"]["description"]]
    lines += [
        "",
        "A running service has this as `/openapi.json`, with the schemas of its own graders.",
    ]
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            lines += [
                "",
                f"## {method.upper()} `{path}`",
                "",
                inspect.cleandoc(route.get("description", "")),
            ]
            rows = [
                (
                    f"`{one['name']}`",
                    one["in"],
                    _schema_type(one["schema"]),
                    one.get("description", ""),
                )
                for one in route.get("parameters", ())
                if not one.get("deprecated")
            ]
            if rows:
                lines += _table(("parameter", "in", "type", "meaning"), rows)
            if body := route.get("requestBody"):
                lines += ["**Request body**", *_content(body["content"])]
            for status, answer in route["responses"].items():
                lines += ["", f"**{status}** {answer.get('description', '')}"]
                # problems look alike everywhere: their schema is enough
                is_problem = "application/problem+json" in answer.get("content", {})
                lines += ["`application/problem+json`: [Problem](#problem)"] if is_problem else []
                lines += [] if is_problem else _content(answer.get("content", {}))
    lines += ["", "## Schemas"]
    texts = {kind.__name__: field_docstrings(kind) for kind in TASKS.values()}
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += ["", f"### {name}", "", inspect.cleandoc(schema.get("description", "")), ""]
        if "properties" not in schema:
            lines += [_schema_type(schema)]
            continue
        required = schema.get("required", ())
        rows = [
            (
                f"`{field}`",
                _schema_type(about),
                "required" if field in required else f"`{_json(about.get('default'))}`",
                about.get("description") or texts.get(name, {}).get(field, ""),
            )
            for field, about in schema["properties"].items()
        ]
        lines += _table(("field", "type", "default", "meaning"), rows)
    return "\n".join(lines)


# ---------------------------------------------------------------------- metrics and alerts


def _metrics_of(registry: CollectorRegistry) -> Iterator[Row]:
    """Rows of the names in a scrape: counters end in `_total`, histograms add `_bucket`, `_sum` and
    `_count`."""
    for collector in registry._collector_to_names:  # families without a sample are not collected
        labels = ", ".join(f"`{name}`" for name in getattr(collector, "_labelnames", ()))
        for family in (
            collector.describe() if hasattr(collector, "describe") else collector.collect()
        ):
            suffix = "_total" if family.type == "counter" else ""
            yield f"`{family.name}{suffix}`", family.type, labels, family.documentation


def _training_metrics() -> Iterator[Row]:
    for table, entries in METRICS.items():
        for name, entry in entries.items():
            label = (
                f"`{entry[0]}`"
                if table in ("computed", "labelled", "families") and entry[0]
                else ""
            )
            values = f": {', '.join(entry[3])}" if table == "labelled" else ""
            yield f"`gradus_train_{name}`", "gauge", label + values, MEANINGS[name]


def _alerts() -> Iterator[str]:
    """A section for each alert. Values and labels in a summary become N and the label's name in
    capitals."""
    groups = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))[
        "groups"
    ]
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        summary = re.sub(r"\{\{ [^}]*\$value[^}]*\}\}", "N", rule["annotations"]["summary"])
        summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: label[1].upper(), summary)
        held = f"Fires after {rule['for']}." if "for" in rule else "Fires at once."
        yield from (
            "",
            f"### {rule['alert']}",
            "",
            f"*{summary}.* {held}",
            "",
            rule["annotations"]["description"],
        )
        yield from ("", "```promql", rule["expr"], "```")


def metrics_page() -> str:
    """Every metric of API, workers and training, and every alert."""
    columns = ("metric", "type", "labels", "meaning")
    lines = ["# Metrics and alerts", "", "[Monitor](../operate/monitor.md) has the addresses."]
    lines += ["", "## API", *_table(columns, _metrics_of(Metrics().registry))]
    lines += ["## Workers", *_table(columns, _metrics_of(WorkerMetrics().registry))]
    lines += [
        "## Training",
        "",
        "Each metric also has the label `run`.",
        *_table(columns, _training_metrics()),
    ]
    lines += ["## Alerts", *_alerts()]
    return "\n".join(lines)


PAGES = {
    "reference/cli.md": cli_page,
    "reference/metrics.md": metrics_page,
    "reference/training_configuration.md": training_page,
    "reference/service_settings.md": services_page,
    "reference/rest.md": rest_page,
}


# ------------------------------------------------------------------------------------------ mkdocs


def on_files(files: Any, config: Any) -> Any:
    """Add the generated and the copied pages."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    for name, (path, there, here) in COPIED.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text.replace(there, here)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links from pages to copied files, which on the site lie elsewhere."""
    depth = page.file.src_uri.count("/")
    for name, (path, *_) in COPIED.items():
        markdown = markdown.replace(f"]({'../' * (depth + 1)}{path}", f"]({'../' * depth}{name}")
    return markdown
