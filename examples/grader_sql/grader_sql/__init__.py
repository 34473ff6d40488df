"""A Gradus grader of SQL queries. docs/write_a_grader.md walks through it."""
