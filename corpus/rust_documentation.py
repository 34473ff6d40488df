"""Documentation of Rust items: pages that rustdoc of the grader's toolchain makes, in one of the
grader's boxes.

The compiled standard library and the grader's crates carry their documentation, so neither sources
nor a network are needed.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache

from services.graders.rust.grader import RustGrader
from services.graders.rust.toolchain import ROOT
from services.sandbox import Command, Limits

_SOURCE = "/box/asked.rs"
_RUN = f'{ROOT}/toolchain/bin/rustdoc "$@" >&2 && cat /tmp/doc/asked/*.*.html'
"""The page of an item has its kind in its name (`struct.Vec.html`); other pages do not."""
_LIMITS = Limits(cpu_s=10, memory_mb=3072, processes=64, output_kb=8192)
_DECLARATION = re.compile(r'item-decl"?.*?<code>(.*?)</code>', re.DOTALL)
_DESCRIPTION = re.compile(r'class="docblock"[^>]*>(.*?)(?:<h[2-6]|</div>)', re.DOTALL)
_METHOD = re.compile(r'class="method">.*?<h4 class="code-header">(.*?)</h4>', re.DOTALL)
_HIDDEN = re.compile(r'<summary class="hideme">.*?</summary>|<[^>]+>', re.DOTALL)


@lru_cache(256)
def render_documentation(
    grader: RustGrader, dependencies: tuple[str, ...], item: str
) -> str | None:
    """Description, declaration and methods of an item, such as `Vec` or `regex::Captures`.

    `item` is a path of the prelude, of the standard library or of one of `dependencies`. None
    where rustdoc has no page of its own for it, or is not installed beside rustc.
    """
    flags = [
        f"--sysroot={ROOT}/toolchain",
        "--edition=2021",
        "--crate-name=asked",
        "--output=/tmp/doc",
    ]
    toolchain = grader.toolchain
    command = Command(
        argv=(
            "/usr/bin/sh",
            "-c",
            _RUN,
            "sh",
            *flags,
            *grader.crates.build_flags(dependencies),
            _SOURCE,
        ),
        limits=_LIMITS,
        files={_SOURCE: f"pub use {item};\n".encode()},
        binds=toolchain.compile_binds,
        mounts={**toolchain.compile_mounts, **grader.crates.mounts},
        environment=toolchain.environment,
    )
    page = grader.sandbox.run(command).stdout.decode(errors="replace")
    parts = (_DESCRIPTION.search(page), _DECLARATION.search(page))
    texts = [_extract_text(part[1]) for part in parts if part]
    if not texts:
        return None
    for method in _METHOD.findall(page):
        texts.append(" ".join(_extract_text(method).split()))
    return "\n\n".join(texts)


def _extract_text(markup: str) -> str:
    return html.unescape(_HIDDEN.sub("", markup.replace('<div class="where">', "\n"))).strip()
