"""The report of a run: one HTML file that needs nothing else, made from the run folder's files alone.

It loads no model, asks no service and runs no JavaScript but its own few lines, which read values off the curves.
Completions are hostile: everything is escaped, and a content security policy lets nothing else run or load.
"""

from __future__ import annotations

import base64
import hashlib
import os
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from gradus.errors import Misuse
from gradus.resources import look
from trainer.evaluate.report.history import read_run
from trainer.evaluate.report.page import Page, page_of

TEMPLATES = "trainer.evaluate.report", "templates"


def write_report(run: Path, out: Path) -> Path:
    """Write the report of the run folder `run` to the file `out`, at once or not at all; returns `out`.

    Files that are missing or torn are named in the report. Raises Misuse when there is no such folder.
    """
    if not run.is_dir():
        raise Misuse(f"{run}: there is no such run folder")
    made = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    html = render(page_of(read_run(run), made))
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    # A lone surrogate can come from a torn log; it must not cost the reader the report.
    partial.write_text(html, encoding="utf-8", errors="replace")
    os.replace(partial, out)
    return out


def render(page: Page) -> str:
    """The page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(*TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _own("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Markup is for our own files; everything that came from a run stays a plain text and is escaped.
    style, code = Markup(look() + _own("report.css")), Markup(script)  # noqa: S704
    return environment.get_template("report.html.j2").render(page=page, style=style, script=code, digest=digest)


def _own(name: str) -> str:
    return resources.files(TEMPLATES[0]).joinpath(TEMPLATES[1], name).read_text(encoding="utf-8")
