"""The module by whose name verifiers and prime-rl find the task set."""

from gradus.integrations.verifiers import GradusTaskset

__all__ = ["GradusTaskset"]
