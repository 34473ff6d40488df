"""The live page: what runs do now, read from their folders, and what the graders do, asked of the API.

It reads and never writes, imports no trainer, and takes nothing in a run folder for true but its size: completions and
files are what models and other programs wrote.
"""
