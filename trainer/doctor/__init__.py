"""What `gradus doctor` says of training: the device and its numbers (`hardware`), packages (`packages`).

`mps` is `make verify-mps`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradus.doctor import Sign, is_installed, tried
from trainer.doctor.hardware import accelerator, chosen_dtypes
from trainer.doctor.packages import package_signs


def signs(redis: str | None) -> Iterator[Sign]:
    if is_installed("torch"):
        yield accelerator()
        if is_installed("trl"):
            yield tried("dtype", chosen_dtypes)
    yield from package_signs()
