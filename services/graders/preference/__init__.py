"""The preference grader: what a reward model makes of a completion, one of `gradus train reward` or any like it."""

import os

# whoever serves tells nobody of it, and tokenizes in threads of its own
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
