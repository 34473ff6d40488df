"""verl 0.9: advantage estimators `gradus_NAME` that leave out samples with a fault.

verl imports this module in each of its processes if `VERL_USE_EXTERNAL_MODULES` names it. The
reward function needs `on_fault=nan` (gradus/integrations/verl.py).
"""

from __future__ import annotations

from verl.trainer.ppo import core_algos

from gradus.integrations.advantages import leave_out_faults

GROUPED = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "opo", "gpg")
"""Names of verl's estimators that need rewards, mask and groups only."""

for _name in GROUPED:
    core_algos.register_adv_est(f"gradus_{_name}")(
        leave_out_faults(core_algos.get_adv_estimator_fn(_name))
    )
