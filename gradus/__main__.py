"""`python -m gradus`."""

from gradus.cli import main

main()
