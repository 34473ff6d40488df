"""Signs that a completion is degenerate: repetition, prose, code spam, stubs. Flags, no opinion about their price.

The conditions are those that OCaml runs needed in practice (docs/decisions/0004); where the originals punished right
answers they are narrower: fences and thinking are no prose, a short remark is no prose, and what passes is no stub.
"""

from __future__ import annotations

import re

from services.extract import Answer

_WINDOW = 50
_STRIDE = 25
_INDICATORS = (
    "placeholder",
    "replace with",
    "actual logic",
    "not implemented",
    "your code here",
    "implement this",
    "implement the",
)
_FAILING = re.compile(r"failwith|\b(?:todo|unimplemented)\s*+!")


def degenerate_flags(answer: Answer, *, uncommented: str) -> tuple[str, ...]:
    """Flags of form `degenerate:<sign>` that do not need a verdict. `uncommented`: its text without comments."""
    text = answer.text
    windows = [text[start : start + _WINDOW] for start in range(0, len(text) - _WINDOW + 1, _STRIDE)]
    signs = {
        "empty": not uncommented.strip(),
        "repetition": len(text) > 2 * _WINDOW and len(set(windows)) / len(windows) < 0.3,
        "prose": answer.prose_chars > 100 and len(text) < answer.prose_chars,
        "code_spam": answer.blocks > 2,
    }
    return tuple(f"degenerate:{name}" for name, seen in signs.items() if seen)


def is_stub(code: str, *, uncommented: str) -> bool:
    """A few lines that only pretend: `failwith`, `todo!`, `assert false` or an announcement in place of the work."""
    lines = [line for line in uncommented.splitlines() if line.strip(" \t{}")]
    lowered = code.lower()
    indicated = any(phrase in lowered for phrase in _INDICATORS)
    fails = _FAILING.search(lowered) is not None
    if len(lines) < 3 and fails:
        return True
    if len(lines) >= 5:
        return False
    raises = fails or ("raise" in lowered and "failure" in lowered)
    return indicated or "assert false" in lowered or (raises and indicated)
