"""What `gradus doctor` says of training: the device and its numbers (`hardware`), packages (`packages`).

`mps` is `make verify-mps`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradus.doctor import Check, is_installed, run_check
from trainer.doctor.hardware import accelerator, chosen_dtypes
from trainer.doctor.packages import package_checks


def signs(redis: str | None) -> Iterator[Check]:
    if is_installed("torch"):
        yield accelerator()
        if is_installed("trl"):
            yield run_check("dtype", chosen_dtypes)
    yield from package_checks()
