"""Reward models: found, loaded with the head that was trained, and asked for scores as they were
trained.

The trainer scores with this in its own process, the grader `preference` behind the REST endpoints,
and both alike. `weights` and `texts` load no torch. Trains nothing, and makes no reward of a score.
"""
