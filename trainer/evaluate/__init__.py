"""Measuring models on tasks: completions of a model here or on a server, verdicts, figures with
intervals, reports.

torch is loaded only where a model is. In five floors, each of which imports only those above it:

    intervals, plan, verdicts, grader_backend, tool_calls               statistics, plans, judges
    breakdowns, completion_store, local, openai_client                  figures, files, completions
    collect, results, pairs, setup                                      from a plan to records
    comparison, exports, held_out, perplexity, replay, single_sample_runs
    chat, command, report, refusal_eval, tool_call_eval                 the commands

Measurements during a run (`trainer.evaluate.held_out`) take the same way: `plan`, `collect`,
`results`.
"""
