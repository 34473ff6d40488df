"""Reward models: their files, the model with its trained head, and scores computed as in training.

The trainer scores with this package in its own process, and so does the grader `preference` behind
the REST endpoints. `model_files` and `tokenization` load no torch.
"""
