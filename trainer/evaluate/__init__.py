"""Measuring a model on held-out tasks, and the report of a run. Trains nothing; torch is loaded only to sample.

`intervals` holds the statistics, `outcome` the files of one evaluation, `measure` the measuring, `command` the command
line's entry `main`; `report` writes a run's report from its files alone, without a model or a service.
"""

from trainer.evaluate.command import main

__all__ = ["main"]
