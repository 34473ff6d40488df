"""The dashboard and the reports: one page over folders of runs and of `gradus eval`, live or as one
file.

Imports no trainer, and takes nothing in a folder for true but its size: completions and files are
what models and other programs wrote.
"""
