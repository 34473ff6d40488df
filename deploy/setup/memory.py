"""Print the memory that workers of graders of code need, as lines for .env.

`python deploy/setup/memory.py 8`: with 8 slots, no box ever waits for memory. The same numbers are
for resources.limits.memory in Kubernetes and MemoryMax in systemd.
"""

from __future__ import annotations

import sys

from services.graders.base.config_loader import read_settings
from services.graders.ocaml import grader as ocaml
from services.graders.ocaml.config import OcamlConfig
from services.graders.program import grader as program
from services.graders.program.config import ProgramConfig
from services.graders.rust import grader as rust
from services.graders.rust.config import RustConfig

WORKER_MB = 256
"""The worker itself and its /tmp."""
STEP_MB = 256


def compute_memory_mb(grader: str, slots: int) -> int:
    """Return the MiB that a worker with so many slots needs, rounded up to `STEP_MB`."""
    if grader == "ocaml":
        needs = ocaml.compute_box_memory(read_settings(OcamlConfig, grader))
    elif grader == "program":
        needs = program.compute_box_memory(read_settings(ProgramConfig, grader))
    else:
        needs = rust.compute_box_memory(read_settings(RustConfig, grader))
    whole_mb = WORKER_MB + slots * (needs.standing_mb + needs.largest_mb)
    return -(-whole_mb // STEP_MB) * STEP_MB


if __name__ == "__main__":
    slots = int(sys.argv[1])
    print(f"GRADUS_SLOTS={slots}")
    for grader in ("ocaml", "rust", "program"):
        print(f"GRADUS_{grader.upper()}_MEMORY={compute_memory_mb(grader, slots)}m")
