"""The report of a run: one HTML file that needs nothing else, made from the run folder's files alone.

It loads no model, asks no service and runs no JavaScript but its own few lines, which read values off the curves.
Completions are hostile: everything is escaped, and a content security policy lets nothing else run or load.
`evaluated` and `compared` are the reports of `gradus eval` and `gradus compare`.
"""

from __future__ import annotations

from pathlib import Path

from gradus.errors import Misuse
from trainer.evaluate.report.history import read_run
from trainer.evaluate.report.page import page_of
from trainer.evaluate.report.rendering import rendered, today, write_page


def write_report(run: Path, out: Path) -> Path:
    """Write the report of the run folder `run` to the file `out`, at once or not at all; returns `out`.

    Files that are missing or torn are named in the report. Raises Misuse when there is no such folder.
    """
    if not run.is_dir():
        raise Misuse(f"{run}: there is no such run folder")
    return write_page(rendered("report.html.j2", page_of(read_run(run), today()), "training report"), out)
