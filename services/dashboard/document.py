"""The page as documents: what the server sends, and one file with styles, script and data in it.

Its modules are sent as one script, in their order and without `import` and `export`, so that a file
needs no other.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

FILES = resources.files("services.dashboard").joinpath("page")
MODULES = (
    *("words", "dom", "store", "series", "chart", "samples", "figures"),
    *("runs", "run", "groups", "compare", "queues", "app"),
)
"""In an order in which each comes after those that it imports."""
IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=const|class|function|async)", re.MULTILINE)


def page_file(name: str) -> str:
    """The text of one of the page's files."""
    return FILES.joinpath(name).read_text(encoding="utf-8")


def script() -> str:
    """All modules as one script."""
    return '"use strict";\n(() => {\n' + joined(MODULES) + "})();\n"


def joined(modules: Sequence[str]) -> str:
    """Modules in one scope."""
    return "".join(EXPORT.sub("", IMPORT.sub("", page_file(f"{name}.js"))) for name in modules)


def live_page() -> str:
    """The HTML document of the server, which loads styles and script."""
    head = '<link rel="stylesheet" href="/style.css">\n<script defer src="/page.js"></script>'
    return _filled(title="Gradus", policy="", head=head, body="")


def standalone_page(title: str, data: Mapping[str, Any]) -> str:
    """A file that needs nothing else: `data` are answers by address, and `start` and `made`.

    A content security policy lets no other script run and nothing load. Data is JSON that no HTML
    parser ends.
    """
    own_style, own_script = page_file("page.css"), script()
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(own_script)}'; style-src"
        f" 'sha256-{_digest(own_style)}'; img-src data:; base-uri 'none'; form-action 'none';"
        " require-trusted-types-for 'script'"
    )
    text = (
        escaped_json(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    )
    body = (
        f'<script type="application/json" id="data">{text}</script>\n<script>{own_script}</script>'
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return _filled(
        title=html.escape(title), policy=meta, head=f"<style>{own_style}</style>", body=body
    )


def escaped_json(content: Any) -> str:
    """JSON in which half a surrogate pair, which a torn log can hold, is an escape and no error."""
    return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _filled(**parts: str) -> str:
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: parts[found[1]], page_file("index.html"))


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def answer_key(path: str, **parameters: str) -> str:
    """How the page looks an answer up in the data of a file: the address without what escapes."""
    return path + "".join(f"&{name}={value}" for name, value in parameters.items())
