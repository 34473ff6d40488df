"""The task of the SQL grader: tables, rows that fill them, and the rows that a query returns."""

from typing import Annotated

from gradus.tasks.base import Task, Text, Wire
from pydantic import Field

Cell = bool | int | float | str | None
Script = Annotated[Text, Field(max_length=100_000)]


class Case(Wire):
    rows: Script = ""
    """Statements that fill the tables. The query can see what they make."""
    equals: Annotated[tuple[tuple[Cell, ...], ...], Field(max_length=10_000)]
    """The rows that the query must return. Blobs are hexadecimal digits. The answer cannot see
    them."""


class SqlTask(Task):
    STAGES = ("extract", "compile", "tests")
    RATES = {"compile": "past:compile", "tests": "passed"}
    FENCES = ("sql", "sqlite")
    EXAMPLE = {
        "id": "a1",
        "prompt": "Table item(name, price). Write a query for the names that cost more than 10.",
        "completion": "```sql\nSELECT name FROM item WHERE price > 10\n```",
        "task": {
            "tables": "CREATE TABLE item (name TEXT, price INTEGER)",
            "cases": [
                {"rows": "INSERT INTO item VALUES ('tea', 4), ('pan', 20)", "equals": [["pan"]]}
            ],
        },
    }

    tables: Annotated[Script, Field(min_length=1)]
    """Statements that make the tables of every case, in the dialect of SQLite."""
    cases: Annotated[tuple[Case, ...], Field(min_length=1, max_length=100)]
    ordered: bool = False
    """Whether the order of rows counts."""
