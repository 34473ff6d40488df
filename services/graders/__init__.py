"""Graders: `base` is what they share, and each other folder is one grader. They are found by entry
points."""
