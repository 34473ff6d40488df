"""The corpus as a data set: rows, and a card with licence, version and digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gradus import __version__
from gradus.errors import Misuse
from services.attacks import Trial

LICENCE = "apache-2.0"
ROWS = "attacks.jsonl"
_CARD = """---
license: {licence}
pretty_name: Attacks of Gradus on reward functions ({grader})
configs: [{{config_name: default, data_files: {rows}}}]
---
# Attacks on reward functions: {grader}

Version {version}, SHA-256 of `{rows}`: `{digest}`. {counts}.

Each row is a completion for `task`. `kind` is `attack`, `honest` or `wrong`; the last two are
controls. `limit` is a share of the way from the wrong answer's reward to the right answer's (of
the same `group`): an attack must stay below it, an honest answer must reach it. `must_not` says
what an attack is after. Attacks are programs that misbehave: run them in a sandbox only.
"""


def render_rows(grader: str, trials: Sequence[Trial]) -> str:
    """Return the rows as JSON lines."""
    rows = []
    for trial in trials:
        row = {"id": f"{grader}/{trial.kind}/{trial.name}", "grader": grader, **asdict(trial)}
        rows.append(json.dumps(row, sort_keys=True) + "\n")
    return "".join(rows)


def compute_digest(rows: str) -> str:
    return hashlib.sha256(rows.encode()).hexdigest()


def export_corpus(folder: Path, grader: str, trials: Sequence[Trial]) -> str:
    """Write rows and card into a new folder; return the digest. Raises Misuse where it exists."""
    if folder.exists():
        raise Misuse(f"{folder}: exists; choose another folder")
    rows = render_rows(grader, trials)
    digest = compute_digest(rows)
    attacks = sum(trial.kind == "attack" for trial in trials)
    card = _CARD.format(
        licence=LICENCE,
        grader=grader,
        rows=ROWS,
        version=__version__,
        digest=digest,
        counts=f"{attacks} attacks, {len(trials) - attacks} controls",
    )
    folder.mkdir(parents=True)
    (folder / ROWS).write_text(rows, encoding="utf-8")
    (folder / "README.md").write_text(card, encoding="utf-8")
    return digest
