"""HTML documents of the page: the one that the server sends, and a file with styles, script and
data in it.

The page's scripts share one scope and are sent as one, in their order, after the library for
charts.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

FILES = resources.files("services.dashboard").joinpath("page")
SCRIPTS = (
    *("words", "dom", "store", "series", "chart", "samples", "figures"),
    *("runs", "run", "groups", "compare", "queues", "app"),
)


def read_page_file(name: str) -> str:
    return FILES.joinpath(name).read_text(encoding="utf-8")


def build_script() -> str:
    """Return the charting library and all scripts as one."""
    page_scripts = "".join(read_page_file(f"{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{read_page_file("uPlot.iife.min.js")}{page_scripts}}})();\n'


def build_style() -> str:
    return read_page_file("uPlot.min.css") + read_page_file("page.css")


def render_live_page() -> str:
    """Return the HTML document of the server, which loads styles and script."""
    head = '<link rel="stylesheet" href="/style.css">\n<script defer src="/page.js"></script>'
    return _render_page(title="Gradus", policy="", head=head, body="")


def render_standalone_page(title: str, data: Mapping[str, Any]) -> str:
    """Return a self-contained file. `data`: answers by path, `start` and `made`."""
    return render_page_with_data(title, data, build_script(), build_style())


def render_page_with_data(
    title: str, data: Mapping[str, Any], own_script: str, own_style: str
) -> str:
    """Return a self-contained file of script, style and data.

    A content security policy lets no other script run and nothing load. The data is JSON without
    characters that could end its element.
    """
    policy = (
        f"default-src 'none'; script-src 'sha256-{_compute_digest(own_script)}'; style-src"
        f" 'sha256-{_compute_digest(own_style)}'; img-src data:; base-uri 'none'; form-action"
        " 'none'; require-trusted-types-for 'script'"
    )
    text = encode_json(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    body = (
        f'<script type="application/json" id="data">{text}</script>\n<script>{own_script}</script>'
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return _render_page(
        title=html.escape(title), policy=meta, head=f"<style>{own_style}</style>", body=body
    )


def encode_json(content: Any) -> str:
    """Return JSON. Half a surrogate pair, which a torn log can hold, is an escape and no error."""
    return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _render_page(**parts: str) -> str:
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: parts[match[1]], read_page_file("index.html"))


def _compute_digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
