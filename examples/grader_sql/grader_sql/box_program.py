"""Runs inside the box: fills a database in memory, runs the query and reports its rows as JSON on
descriptor 3.

Only the query is the answer's. It can return any rows, which is why no expected row is in this
process.
"""

import json
import sqlite3
import sys


def read(row: tuple[object, ...]) -> list[object]:
    return [cell.hex() if isinstance(cell, bytes) else cell for cell in row]


asked = json.load(sys.stdin)
report = open(3, "w")  # noqa: SIM115
print("started", file=report, flush=True)
database = sqlite3.connect(":memory:")
database.text_factory = lambda text: text.decode(errors="replace")
try:
    database.executescript(asked["tables"] + ";" + asked["rows"])
except sqlite3.Error as error:
    found = {"task": str(error)}
else:
    try:
        rows = database.execute(asked["query"])  # one statement: a second one is an error
        found = {"rows": [read(row) for row in rows]}
    except (sqlite3.Error, sqlite3.Warning, UnicodeError, MemoryError) as error:
        found = {"message": str(error)}
print(json.dumps(found), file=report, flush=True)
