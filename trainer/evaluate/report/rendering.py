"""From the values of a page to one HTML file that needs nothing else. Knows no run and no figure.

Markup is for our own files; everything that came from a run stays a plain text and is escaped. A content security
policy lets no other script run and nothing load.
"""

from __future__ import annotations

import base64
import hashlib
import os
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from gradus.resources import theme_css

TEMPLATES = "trainer.evaluate.report", "templates"


def rendered(template: str, page: Any, kind: str) -> str:
    """The page as HTML. `kind` names what it is, such as `training report`."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(*TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _own("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = {"style": Markup(theme_css() + _own("report.css")), "script": Markup(script), "digest": digest}  # noqa: S704
    return environment.get_template(template).render(page=page, kind=kind, **own)


def write_page(html: str, out: Path) -> Path:
    """Write the file at once or not at all; returns `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    # A lone surrogate can come from a torn log; it must not cost the reader the report.
    partial.write_text(html, encoding="utf-8", errors="replace")
    os.replace(partial, out)
    return out


def today() -> str:
    """When a page is made, in words."""
    return datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")


def _own(name: str) -> str:
    return resources.files(TEMPLATES[0]).joinpath(TEMPLATES[1], name).read_text(encoding="utf-8")
