"""Measuring models on tasks: completions of a model here or on a server, verdicts, figures with intervals, reports.

torch is loaded only where a model is. In five floors, each of which imports only those above it:

    plan, verdicts, intervals, judging, tool_calls   what is asked; facts of one record; statistics; who judges
    endpoint, local, store, figures                  the two sources of completions; files; the finer figures
    preparing, collect, outcome, replay              from options to a plan; from a plan to records; figures
    comparison, exports, perplexity, ungraded        `gradus compare`, `gradus sample`, `gradus eval-perplexity`
    command, calling, declining                      `gradus eval`, `gradus eval-tools`, `gradus eval-refusals`

Measurements during a run (`trainer.evaluate.held_out`) take the same way: `plan`, `collect`, `outcome`.
"""
