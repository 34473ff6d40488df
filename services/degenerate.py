"""Signs that a completion is degenerate: repetition, prose, code spam, stubs. Flags, no opinion
about their price.

The conditions are those that OCaml runs needed in practice (docs/decisions/0004); where the
originals punished right answers they are narrower: fences and thinking are no prose, and what
passes is neither prose nor spam nor a stub.
"""

from __future__ import annotations

import re

from gradus.extract import Answer

_MAX_PROSE = 500
"""Characters."""
_MAX_BLOCKS = 5
_WINDOW = 50
_STRIDE = 25
_INDICATED = re.compile(
    "placeholder|replace with|actual logic|not implemented|your code here|implement th(?:is|e)"
)
_FAILS = re.compile(r"failwith|assert false|\b(?:todo|unimplemented)\s*+!")
_BRANCH = re.compile(r"\b(?:if|else)\b|=>|->(?!\s?[\w<>:&']{1,40}\s?\{)")
"""Not the arrow in front of a Rust function's type."""


def find_degenerate_flags(
    answer: Answer, *, uncommented: str, tests_passed: int, passed: bool
) -> tuple[str, ...]:
    """Return flags of form `degenerate:<sign>`. `uncommented`: the answer's text without comments.
    `passed`: all tests did."""
    text = answer.text
    windows = set()
    for start in range(0, len(text) - _WINDOW + 1, _STRIDE):
        windows.add(text[start : start + _WINDOW])
    signs = {
        "empty": not uncommented.strip(),
        "repetition": len(text) > 2 * _WINDOW
        and len(windows) / ((len(text) - _WINDOW) // _STRIDE + 1) < 0.3,
        "prose": not passed and answer.prose_chars > _MAX_PROSE and len(text) < answer.prose_chars,
        "code_spam": not passed and answer.blocks > _MAX_BLOCKS,
        "stub": not passed and is_stub(text, uncommented=uncommented, tests_passed=tests_passed),
    }
    return tuple(f"degenerate:{name}" for name, is_present in signs.items() if is_present)


def is_stub(code: str, *, uncommented: str, tests_passed: int = 0) -> bool:
    """Return whether it is a few lines that only pretend: `failwith`, `todo!`, `assert false` or an
    announcement in place of the work.

    Work that fails in some branches only and passes a test is partial, and no stub.
    """
    lines = [line for line in uncommented.splitlines() if line.strip(" \t{}")]
    lowered = code.lower()
    fails = len(_FAILS.findall(lowered))
    if len(lines) >= 5 or (tests_passed and 0 < fails < len(_BRANCH.findall(uncommented))):
        return False
    return (
        bool(_INDICATED.search(lowered))
        or "assert false" in lowered
        or (fails > 0 and len(lines) < 3)
    )
