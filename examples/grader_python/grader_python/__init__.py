"""A Gradus grader of Python answers. docs/write_a_grader.md walks through it."""
