"""The story grader: reads user stories out of a completion and compares what they want with a
task's references."""

import os

# ONNX Runtime's own builds report their use to Microsoft, and keep a device id, unless told before
# they are loaded
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
