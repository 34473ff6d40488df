"""`make verify-mps`: does torch compute rightly on Apple Silicon? A small network with attention
learns there, as on the CPU.

Graders do not run there: they need Linux, in containers. The trainer does, natively.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

EXIT_WORKS, EXIT_FAILS = 0, 1
TOLERANCE = 1e-2
"""Largest difference of two losses, as a share of the first one."""
STEPS = 20


def main() -> int:
    """Print what works; 0 when training can run on MPS, else 1 and why."""
    import torch

    if not torch.backends.mps.is_available():
        print(
            "MISS no MPS: it needs macOS 14 or newer on Apple Silicon, a Python for arm64 and a"
            f" torch built with it; here are {platform.platform()} and torch {torch.__version__}"
        )
        return EXIT_FAILS
    trouble = find_trouble(torch, "mps")
    if trouble is not None:
        print(f"MISS torch {torch.__version__} on MPS: {trouble}")
        return EXIT_FAILS
    print(f"ok   torch {torch.__version__} learns on MPS as on the CPU")
    print(
        "Graders need Linux: run them in containers (docker compose up). `gradus train` runs here,"
        " natively."
    )
    return EXIT_WORKS


def find_trouble(torch: Any, device: str) -> str | None:
    """Return what is wrong with learning on that device; None: nothing."""
    try:
        device_losses = _compute_losses(torch, device)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return str(error).strip().splitlines()[0]
    cpu_losses = _compute_losses(torch, "cpu")
    difference = max(abs(a - b) for a, b in zip(cpu_losses, device_losses, strict=True))
    if not difference <= TOLERANCE * cpu_losses[0]:
        return f"losses differ from the CPU's by up to {difference:.2g}"
    if device_losses[-1] < device_losses[0] / 2:
        return None
    return f"nothing was learnt in {STEPS} steps"


def _compute_losses(torch: Any, device: str) -> list[float]:
    """Losses of a network with causal attention, step by step."""
    torch.manual_seed(3)
    first, last = torch.nn.Linear(8, 32), torch.nn.Linear(32, 1)
    inputs = torch.randn(16, 4, 8)
    targets = inputs.sum(dim=2, keepdim=True).cumsum(dim=1).to(device)
    inputs = inputs.to(device)
    network = torch.nn.ModuleList([first, last]).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        hidden = torch.nn.functional.gelu(first(inputs))
        attended = torch.nn.functional.scaled_dot_product_attention(
            hidden, hidden, hidden, is_causal=True
        )
        loss = torch.nn.functional.mse_loss(last(hidden + attended), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


if __name__ == "__main__":
    sys.exit(main())
