"""Duplicates in a file of rows: the same prompt or tests, or nearly the same prompt.

The first row stays. Rows of one `group` are variants that were made on purpose: only the same
prompt makes one of them a duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence

from corpus.problems import group, text, traits
from corpus.similarity import NGRAM_LENGTH, similar_pairs
from corpus.task_rows import Finding
from gradus.row_reader import Row


def find_duplicates(rows: Sequence[Row]) -> list[Finding]:
    """Return every row that duplicates an earlier one, in order, with the place of the row that
    stays."""
    found: dict[int, Finding] = {}
    seen: dict[tuple[str, str], Row] = {}
    for at, row in enumerate(rows):
        own = [trait for trait in traits(row.values) if trait[0] in ("prompt", "tests")]
        for trait in own:
            first = seen.get(trait)
            if first is not None and (trait[0] == "prompt" or not _are_variants(row, first)):
                found[at] = Finding(row, [f"the same {trait[0]}, at {first.where}"])
                break
        else:
            for trait in own:
                seen.setdefault(trait, row)
    left = [at for at in range(len(rows)) if at not in found]
    prompts = [text(rows[at].values, "prompt") for at in left]
    for earlier, later, share in similar_pairs(prompts):
        first = rows[left[earlier]]
        at = left[later]
        is_known = at in found or left[earlier] in found
        if not is_known and not _are_variants(rows[at], first):
            reason = f"{share:.0%} of the runs of {NGRAM_LENGTH} words of the prompt"
            found[at] = Finding(rows[at], [f"{reason}, at {first.where}"])
    return [found[at] for at in sorted(found)]


def _are_variants(one: Row, other: Row) -> bool:
    return bool(group(one.values)) and group(one.values) == group(other.values)
