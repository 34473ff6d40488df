"""Which backend writes the completions, as the config's `generation` says, and how TRL is told. Generates nothing.

Three of them: this process through transformers (TRL's own code), a vLLM server with weights as files or adapters
(`served`), and a vLLM server with TRL's own NCCL transfer, where there is CUDA.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from trl.trainer import grpo_trainer

from trainer.config import GenerationConfig
from trainer.generation.served import Served, ServedGeneration
from trainer.run_folder import RunFolder


def vllm_options(config: GenerationConfig) -> dict[str, Any]:
    """What of it TRL's GRPOConfig is told."""
    if config.backend == "in_process":
        return {}
    return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": config.url}


@contextmanager
def generating(config: GenerationConfig, folder: RunFolder, say: Callable[[str], None]) -> Iterator[Served | None]:
    """A trainer of TRL's that is made inside the block generates this way; None where TRL does it all by itself."""
    if config.backend == "in_process" or config.sync == "nccl":
        yield None
        return
    run = f"gradus-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
    served = Served(config, config.folder or folder.path / "weights", run, say)
    # TRL has no other way to be given a backend of one's own that keeps its importance-sampling correction
    own = grpo_trainer.VLLMGeneration
    grpo_trainer.VLLMGeneration = partial(ServedGeneration, served=served)
    try:
        yield served
    finally:
        grpo_trainer.VLLMGeneration = own
