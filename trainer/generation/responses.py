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
DECLARED = {"1.16.0": ("0.31.0",)}
"""TRL -> releases of vLLM in requirements-gpu.lock, which TRL declares. No card has run them yet:
`make verify-gpu` does."""
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
    """Raise GenerationStopped for a pair that was neither tried nor locked, unless that is
    `allowed`. None: the installed TRL."""
    trl = trl or version("trl")
    known = (*TESTED.get(trl, ()), *DECLARED.get(trl, ()))
    if allowed or server_version.partition("+")[0] in known:
        return
    raise GenerationStopped(
        f"TRL {trl} and a vLLM server of version {server_version} were never tried together (tried:"
        f" {describe_tested_pairs()}). Install one of these, or set"
        " generation.allow_untested_versions: true and generation.verify_sync: always."
    )


def describe_tested_pairs() -> str:
    """Return the versions that were tried together, in words."""
    return "; ".join(
        f"TRL {ours} with vLLM {' or '.join(theirs)}" for ours, theirs in TESTED.items()
    )


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion as the server made it."""

    ids_T: list[int]
    logprobs_T: list[float]
    """Log-probability of each token, after temperature and filters."""


def get_field(tree: Any, name: str, kind: type | UnionType) -> Any:
    """Return a field of an answer, of that type."""
    value = tree.get(name) if isinstance(tree, dict) else None
    if not isinstance(value, kind):
        raise TransientServerError(f"the answer has no {name}: {_render_excerpt(tree)}")
    return value


def parse_group(
    answer: Any, prompt: Sequence[int], n: int, max_tokens: int, vocab_size: int
) -> list[Sampled]:
    """Return the `n` completions of one prompt, in the order of their indices."""
    choices = get_field(answer, "choices", list)
    if len(choices) != n:
        raise TransientServerError(f"{len(choices)} completions in place of {n}")
    by_index = {get_field(choice, "index", int): choice for choice in choices}
    if sorted(by_index) != list(range(n)):
        raise TransientServerError(
            f"completions numbered {sorted(by_index)} in place of 0 to {n - 1}"
        )
    completions = []
    for index in range(n):
        completions.append(_parse_completion(by_index[index], prompt, max_tokens, vocab_size))
    return completions


def _parse_completion(
    choice: Any, prompt: Sequence[int], max_tokens: int, vocab_size: int
) -> Sampled:
    if get_field(choice, "prompt_token_ids", list) != list(prompt):
        raise TransientServerError(f"a completion of another prompt: {_render_excerpt(choice)}")
    ids = get_field(choice, "token_ids", list)
    logprobs = get_field(get_field(choice, "logprobs", dict), "token_logprobs", list)
    if len(ids) != len(logprobs) or not 0 < len(ids) <= max_tokens:
        raise TransientServerError(
            f"{len(ids)} tokens, {len(logprobs)} log-probabilities, of 1 to {max_tokens}"
        )
    if not all(type(value) is int and 0 <= value < vocab_size for value in ids):
        raise TransientServerError(
            f"a token id outside of 0 to {vocab_size - 1}: {_render_excerpt(ids)}"
        )
    return Sampled(ids, list(map(_parse_logprob, logprobs)))


def parse_prompt_logprobs(answer: Any, ids_T: Sequence[int]) -> list[float]:
    """Return log-probabilities of every token of a prompt but the first, given those before it."""
    choice, *_ = get_field(answer, "choices", list) or [None]
    rows = get_field(choice, "prompt_logprobs", list)
    if len(rows) != len(ids_T):
        raise TransientServerError(
            f"log-probabilities of {len(rows)} tokens in place of {len(ids_T)}"
        )
    logprobs_T = []
    for token, row in zip(ids_T[1:], rows[1:], strict=True):
        logprobs_T.append(
            _parse_logprob(get_field(get_field(row, str(token), dict), "logprob", int | float))
        )
    return logprobs_T


def _parse_logprob(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value > ROUNDING
    ):
        raise TransientServerError(f"{_render_excerpt(value)} is no log-probability")
    return float(value)


def _render_excerpt(tree: Any) -> str:
    return str(tree)[:SHOWN_CHARS]
