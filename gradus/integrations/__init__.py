"""Rewards for other trainers, one small module per trainer over `core`. No module is imported
before it is used.

| trainer | module |
|---|---|
| TRL | `gradus.integrations.trl` |
| verl | `gradus.integrations.verl` |
| OpenRLHF | `gradus.integrations.openrlhf` |
| verifiers, prime-rl | `gradus.integrations.verifiers` |
| slime, miles | `gradus.integrations.slime` |
| inspect_ai | `gradus.integrations.inspect` |
| SkyRL | `gradus.integrations.skyrl` |
| AReaL | `gradus.integrations.areal` |
| tinker-cookbook | `gradus.integrations.tinker` |

The docstring of each module is its recipe; docs/integrations.md says what each trainer does with a
fault.
"""
