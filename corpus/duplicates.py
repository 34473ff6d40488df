"""Duplicates in a file of rows: the same prompt or tests, or nearly the same prompt.

The first row stays. Rows of one `group` are variants that were made on purpose: only the same
prompt makes one of them a duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence

from corpus.problems import get_group, iter_traits, render_column
from corpus.similarity import NGRAM_LENGTH, find_similar_pairs
from corpus.task_rows import Finding
from gradus.row_reader import Row


def find_duplicates(rows: Sequence[Row]) -> list[Finding]:
    """Return every row that duplicates an earlier one, in order, with the place of the row that
    stays."""
    findings: dict[int, Finding] = {}
    first_rows: dict[tuple[str, str], Row] = {}
    for at, row in enumerate(rows):
        row_traits = [trait for trait in iter_traits(row.values) if trait[0] in ("prompt", "tests")]
        for trait in row_traits:
            first = first_rows.get(trait)
            if first is not None and (trait[0] == "prompt" or not _are_variants(row, first)):
                findings[at] = Finding(row, [f"the same {trait[0]}, at {first.where}"])
                break
        else:
            for trait in row_traits:
                first_rows.setdefault(trait, row)
    remaining = [at for at in range(len(rows)) if at not in findings]
    prompts = [render_column(rows[at].values, "prompt") for at in remaining]
    for earlier, later, share in find_similar_pairs(prompts):
        first = rows[remaining[earlier]]
        at = remaining[later]
        is_known = at in findings or remaining[earlier] in findings
        if not is_known and not _are_variants(rows[at], first):
            reason = f"{share:.0%} of the runs of {NGRAM_LENGTH} words of the prompt"
            findings[at] = Finding(rows[at], [f"{reason}, at {first.where}"])
    return [findings[at] for at in sorted(findings)]


def _are_variants(row: Row, other: Row) -> bool:
    return bool(get_group(row.values)) and get_group(row.values) == get_group(other.values)
