"""Measuring models on tasks: completions of a model here or on a server, verdicts, figures with intervals, reports.

Trains nothing; torch is loaded only where a model is. Read in this order:

    asking, endpoint, local    what is asked, and the two sources of completions
    store, collect, judging    completions kept as they come, and judged while others are being written
    outcome, details, causes   figures from completions and nothing else; `intervals` holds the statistics
    command, folder, exports   `gradus eval`, and the folder that it leaves
    comparison, compare        two evaluations against each other: `gradus compare`
    replay, sampling           `gradus replay` and `gradus sample`; `perplexity` is `gradus eval --perplexity`
    measure                    the same measuring during a run, for `trainer.held_out`
    report/                    the pages: of a run, an evaluation, a comparison
"""
