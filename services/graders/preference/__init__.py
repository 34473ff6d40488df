"""The preference grader: what a reward model makes of a completion, one of `gradus train reward` or
any like it."""

import os

# a grader sends no telemetry, and scores in threads of its own, beside which tokenizers' threads
# would compete
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
