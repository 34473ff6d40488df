"""What a vLLM server answers, checked before it is believed: shapes, lengths, token ids, finite
numbers, its version.

Whether the server holds the right weights cannot be seen here. A generation server can fail a run
in two ways: another try may mend a `ServerTrouble`, and none mends what raises `GenerationStopped`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import UnionType
from typing import Any

from gradus.errors import GradusError

TESTED = {"1.16.0": ("0.32.0",)}
"""TRL -> releases of vLLM that the whole of `make test-vllm` passed with."""
SHOWN_CHARS = 200
"""Characters that messages quote of an unusable response."""
ROUNDING = 1e-3
"""So far above 0 a log-probability may come out of sums in low precision."""


class TransientServerError(Exception):
    """The server is away, broke off, or answered nonsense: worth another try once it is there
    again."""


class GenerationStopped(GradusError):
    """Completions cannot be had; the message names the server and says what to do."""


def refuse_untested(server_version: str, *, allowed: bool, trl: str | None = None) -> None:
    """Raises GenerationStopped for a pair that was never tried, unless that is `allowed`. None: the
    installed TRL."""
    trl = trl or version("trl")
    if allowed or server_version.partition("+")[0] in TESTED.get(trl, ()):
        return
    raise GenerationStopped(
        f"TRL {trl} and a vLLM server of version {server_version} were never tried together (tried:"
        f" {tested_pairs()}). Install one of these, or set generation.allow_untested_versions: true"
        " and generation.verify_sync: always."
    )


def tested_pairs() -> str:
    """The versions that were tried together, in words."""
    return "; ".join(
        f"TRL {ours} with vLLM {' or '.join(theirs)}" for ours, theirs in TESTED.items()
    )


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion as the server made it."""

    ids_T: list[int]
    logprobs_T: list[float]
    """Log-probability of each token, after temperature and filters."""


def field_of(tree: Any, name: str, kind: type | UnionType) -> Any:
    """A field of an answer, of that type."""
    value = tree.get(name) if isinstance(tree, dict) else None
    if not isinstance(value, kind):
        raise TransientServerError(f"the answer has no {name}: {_shown(tree)}")
    return value


def group_of(
    said: Any, prompt: Sequence[int], n: int, max_tokens: int, vocab_size: int
) -> list[Sampled]:
    """The `n` completions of one prompt, in the order of their indices."""
    choices = field_of(said, "choices", list)
    if len(choices) != n:
        raise TransientServerError(f"{len(choices)} completions in place of {n}")
    by_index = {field_of(choice, "index", int): choice for choice in choices}
    if sorted(by_index) != list(range(n)):
        raise TransientServerError(
            f"completions numbered {sorted(by_index)} in place of 0 to {n - 1}"
        )
    return [_sampled(by_index[index], prompt, max_tokens, vocab_size) for index in range(n)]


def _sampled(choice: Any, prompt: Sequence[int], max_tokens: int, vocab_size: int) -> Sampled:
    if field_of(choice, "prompt_token_ids", list) != list(prompt):
        raise TransientServerError(f"a completion of another prompt: {_shown(choice)}")
    ids = field_of(choice, "token_ids", list)
    logprobs = field_of(field_of(choice, "logprobs", dict), "token_logprobs", list)
    if len(ids) != len(logprobs) or not 0 < len(ids) <= max_tokens:
        raise TransientServerError(
            f"{len(ids)} tokens, {len(logprobs)} log-probabilities, of 1 to {max_tokens}"
        )
    if not all(type(one) is int and 0 <= one < vocab_size for one in ids):
        raise TransientServerError(f"a token id outside of 0 to {vocab_size - 1}: {_shown(ids)}")
    return Sampled(ids, [_logprob(one) for one in logprobs])


def logprobs_of(said: Any, ids_T: Sequence[int]) -> list[float]:
    """Log-probabilities of every token of a prompt but the first, given those before it."""
    choice, *_ = field_of(said, "choices", list) or [None]
    rows = field_of(choice, "prompt_logprobs", list)
    if len(rows) != len(ids_T):
        raise TransientServerError(
            f"log-probabilities of {len(rows)} tokens in place of {len(ids_T)}"
        )
    return [
        _logprob(field_of(field_of(row, str(token), dict), "logprob", int | float))
        for token, row in zip(ids_T[1:], rows[1:], strict=True)
    ]


def _logprob(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value > ROUNDING
    ):
        raise TransientServerError(f"{_shown(value)} is no log-probability")
    return float(value)


def _shown(tree: Any) -> str:
    return str(tree)[:SHOWN_CHARS]
