"""SkyRL 0.3: advantage estimators `gradus_NAME` that leave out samples with a fault.

Call `register()` in the entry point before the trainer starts. The environment needs
`on_fault: nan` (gradus/integrations/skyrl.py).
"""

from __future__ import annotations

from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry

from gradus.integrations.advantages import leave_out_faults

GROUPED = ("grpo", "rloo", "maxrl")
"""Names of SkyRL's estimators that need rewards, mask and groups only."""


def register() -> None:
    """Register the estimators in SkyRL's registry."""
    AdvantageEstimatorRegistry.repopulate_registry()
    for name in GROUPED:
        estimator = AdvantageEstimatorRegistry.get(name)
        AdvantageEstimatorRegistry.register(f"gradus_{name}", leave_out_faults(estimator))
