"""Makes files of tasks from other people's material: imports, repairs, trajectories, doubles,
leaks, splits.

Each module does one of these on rows and knows nothing of the command line. Nothing here trains,
and nothing that is read is run outside of a grader's boxes.
"""
