"""The HTTP face of the graders: validates, queues, waits, answers. Judges nothing and imports no grader."""
