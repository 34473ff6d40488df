"""`make verify-mps`: does torch compute rightly on Apple Silicon? Multiplies, attends, learns;
compares with the CPU.

Graders do not run there: they need Linux, in containers. The trainer does, natively.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any

EXIT_WORKS, EXIT_FAILS = 0, 1
TOLERANCE = 1e-3
STEPS = 20


def main() -> int:
    """Print what works, line by line; 0 when training can run on MPS, else 1 and why."""
    try:
        import torch
    except ImportError:
        print("MISS torch is not installed: pip install 'gradus-rl[train]'")
        return EXIT_FAILS
    if not torch.backends.mps.is_available():
        print(f"MISS {why_not(torch)}")
        return EXIT_FAILS
    print(f"ok   torch {torch.__version__} on macOS {platform.mac_ver()[0]}, {platform.machine()}")
    works = [_said(name, look) for name, look in mps_checks(torch, "mps")]
    print(
        "Graders need Linux: run them in containers (docker compose up). `gradus train` runs here,"
        " natively."
    )
    return EXIT_WORKS if all(works) else EXIT_FAILS


def why_not(torch: Any) -> str:
    """Why there is no MPS, and what to do."""
    if sys.platform != "darwin":
        return (
            f"this is {platform.system()}, and MPS is Apple Silicon's; `gradus doctor` says what"
            " there is here"
        )
    if platform.machine() != "arm64":
        return f"this Python is built for {platform.machine()}: install one for arm64"
    if not torch.backends.mps.is_built():
        return "this torch is built without MPS: pip install --force-reinstall torch"
    return f"macOS {platform.mac_ver()[0]} has no MPS that torch can use: 14 or newer is needed"


def mps_checks(torch: Any, device: str) -> Iterator[tuple[str, Callable[[], bool]]]:
    """What training needs, each compared with the CPU."""
    yield "multiplies as the CPU does", lambda: _multiplies(torch, device)
    yield f"a small network learns in {STEPS} steps", lambda: _learns(torch, device)
    yield "a causal attention as the CPU's", lambda: _attends(torch, device)


def _said(name: str, look: Callable[[], bool]) -> bool:
    try:
        works = look()
        print(f"{'ok  ' if works else 'MISS'} {name}")
        return works
    except (RuntimeError, NotImplementedError, TypeError) as error:
        print(f"MISS {name}: {str(error).strip().splitlines()[0]}")
        return False


def _multiplies(torch: Any, device: str) -> bool:
    one, other = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(1))
    return _alike(torch, one @ other, one.to(device) @ other.to(device))


def _attends(torch: Any, device: str) -> bool:
    qkv = torch.randn(3, 2, 4, 16, 8, generator=torch.Generator().manual_seed(2))
    attention = torch.nn.functional.scaled_dot_product_attention
    there = attention(*qkv.to(device), is_causal=True)
    return _alike(torch, attention(*qkv, is_causal=True), there)


def _learns(torch: Any, device: str) -> bool:
    torch.manual_seed(3)
    network = torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1)
    ).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    inputs = torch.randn(64, 8).to(device)
    wanted = inputs.sum(dim=1, keepdim=True)
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.mse_loss(network(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses[-1] < losses[0] / 2


def _alike(torch: Any, here: Any, there: Any) -> bool:
    difference = (here - there.cpu()).abs().max()
    return bool(torch.isfinite(difference)) and float(difference) <= TOLERANCE * float(
        here.abs().max()
    )


if __name__ == "__main__":
    sys.exit(main())
