"""`gradus train` with vLLM in the trainer's own process, on a machine without a GPU: for
test_vllm_with_presets.py.

`python -m tests.vllm_server.colocated BEHIND CONFIG [overrides]`, by the interpreter of an
environment with vLLM; what it lacks is looked for in the folder BEHIND, the trainer's packages.
TRL's code is used as it is. Two things that it asks of vLLM are not there on a CPU (vLLM 0.32) and
are made up for; no memory is freed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def main() -> int:
    behind, config, *overrides = sys.argv[1:]
    sys.path.append(behind)
    leave_weights_unpacked()
    put_sleep_there()
    from trainer.train import main as train

    return train(Path(config), overrides)


def leave_weights_unpacked() -> None:
    """TRL loads new weights into vLLM's parameters, of which a CPU keeps nothing but copies that
    oneDNN has packed."""
    from vllm import _custom_ops

    _custom_ops._supports_onednn = False


def put_sleep_there() -> None:
    """vLLM refuses to sleep without a GPU. All that a run sees of level 2 is that weights are gone
    until sent again."""
    import torch
    from trl.generation import vllm_generation
    from vllm import LLM

    class Sleeping(LLM):
        def __init__(self, *, enable_sleep_mode: bool, **options: Any) -> None:
            assert enable_sleep_mode
            super().__init__(enforce_eager=True, **options)

        def sleep(self, level: int = 1, **options: Any) -> None:
            assert level == 2
            noise = torch.Generator().manual_seed(1)  # TRL overlooks probabilities that are NaN
            for (
                weight
            ) in self.llm_engine.model_executor.driver_worker.model_runner.model.parameters():
                weight.data.normal_(generator=noise)

        def wake_up(self, tags: list[str] | None = None) -> None:
            assert tags in (["weights"], ["kv_cache"])

    vllm_generation.LLM = Sleeping


if __name__ == "__main__":
    sys.exit(main())
