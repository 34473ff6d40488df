"""Requests after validation: submissions as JSON texts, which take the memory of their characters.

As objects a task of many short values takes twenty times as much, so each is made into texts before
the next is parsed.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from gradus.contract import RawSubmission, encode_canonical, hash_work


class PackedSubmission(NamedTuple):
    """A valid submission. All but its id are canonical JSON in UTF-8."""

    id: str
    prompt: bytes
    completion: bytes
    task: bytes

    def encode(self) -> str:
        """Return the submission as JSON."""
        fields = {
            "id": json.dumps(self.id, ensure_ascii=False),
            "prompt": self.prompt.decode(),
            "completion": self.completion.decode(),
            "task": self.task.decode(),
        }
        members = ", ".join(f'"{name}": {text}' for name, text in fields.items())
        return f"{{{members}}}"

    def compute_job_id(self, grader: str, rubric: str, *, reads_prompt: bool) -> str:
        """Return what `gradus.contract.compute_job_id` does."""
        content = [self.task, self.completion]
        if reads_prompt:
            content.append(self.prompt)
        return hash_work(grader, rubric, content)


class PackedRequest(NamedTuple):
    """A valid request."""

    rubric: str | None
    deadline_s: float
    submissions: list[PackedSubmission]


def pack_submission(submission: RawSubmission) -> PackedSubmission:
    """Return the submission as texts. Raises ValueError for a number that is infinite or NaN."""
    return PackedSubmission(
        submission.id,
        encode_canonical(submission.prompt),
        encode_canonical(submission.completion),
        encode_canonical(submission.task),
    )
