"""`gradus tasks harden`: tests that kill mutants which pass the tests of a task.

`engine` counts and gates; a module per grader makes mutants and inputs.
"""
