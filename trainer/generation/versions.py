"""Which vLLM was tried with which TRL: both change what they say to each other between versions. Loads neither."""

from __future__ import annotations

from importlib.metadata import version

from trainer.generation.trouble import GenerationStopped

TESTED = {"1.16.0": ("0.32.0",)}
"""TRL -> releases of vLLM that the whole of `make test-vllm` passed with."""


def refuse_untested(server_version: str, *, allowed: bool, trl: str | None = None) -> None:
    """Raises GenerationStopped for a pair that nobody has tried, unless that is `allowed`. None: the TRL of here."""
    trl = trl or version("trl")
    release = server_version.partition("+")[0]
    if allowed or release in TESTED.get(trl, ()):
        return
    known = "; ".join(f"TRL {ours} with vLLM {' or '.join(theirs)}" for ours, theirs in TESTED.items())
    raise GenerationStopped(
        f"TRL {trl} and a vLLM server of version {server_version} were never tried together (tried: {known}). Install "
        "one of these, or set generation.allow_untested_versions: true and generation.verify_sync: always."
    )
