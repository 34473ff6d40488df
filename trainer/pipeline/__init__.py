"""Several commands in a row, each a process of its own, with gates between them: `gradus pipeline
run`.

`plan` is what a file says, `stages` what a stage is and which command does it, `digests` and
`state` what was done with what, `subprocesses` the processes, `run` the order. `metrics`, `gates`
and `gate_command` decide whether a model is good enough; they know nothing of pipelines and are
`gradus gate` as well.
"""
