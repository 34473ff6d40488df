"""`gradus train` in one process of a launch on a CPU, where weights or the optimizer may be
sharded.

Usage: torchrun --nproc_per_node 2 -m tests.sharded_run {ddp,zero2,zero3,fsdp2} CONFIG [OVERRIDE
...]

DeepSpeed and FSDP are meant for GPUs, and accelerate 1.15 uses neither for a run on a CPU: here it
takes the CPU for a GPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SHARDED: dict[str, dict[str, str]] = {
    "zero2": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"},
    "zero3": {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
    },
    "fsdp2": {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    },
}


def main(kind: str, config: Path, overrides: list[str]) -> int:
    from trainer.train import main as train

    if kind in SHARDED:
        from accelerate import PartialState
        from accelerate.utils import DistributedType

        from trainer.stages.rl import Rl

        os.environ.update(SHARDED[kind], ACCELERATE_TORCH_DEVICE="cpu")
        options = Rl.options
        PartialState._prepare_backend = lambda *given, **named: ("gloo", DistributedType.MULTI_GPU)
        Rl.options = lambda *given: {**options(*given), "use_cpu": False}
    return train(config, overrides)


if __name__ == "__main__":
    kind, config, *overrides = sys.argv[1:]
    sys.exit(main(kind, Path(config), overrides))
