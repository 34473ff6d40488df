"""The HTTP API of the graders: validates, queues, waits, responds. Imports no grader."""
