"""The story grader: reads user stories out of a completion and compares what they want with a
task's references."""
