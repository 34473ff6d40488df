"""The cells of a notebook, in order and in one namespace as in a kernel: `notebook_peer.py FILE`.

Its service is the one of the test, and its figure is kept instead of shown.
"""

import ast
import asyncio
import inspect
import json
import os
import sys
from pathlib import Path
from types import FunctionType

from common import SERVICE

FILE = Path(sys.argv[1])
CELLS = [cell for cell in json.loads(FILE.read_text())["cells"] if cell["cell_type"] == "code"]


async def main():
    space = {"__name__": "__main__"}
    for cell in CELLS:
        source = "".join(cell["source"]).replace("http://127.0.0.1:8000", SERVICE)
        found = FunctionType(
            compile(source, FILE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), space
        )()
        if inspect.iscoroutine(found):
            await found
    [line] = space["plt"].gcf().axes[0].lines
    rewards = [result.reward for result in space["results"]]
    print("RESULT " + json.dumps({"rewards": rewards, "plotted": line.get_ydata().tolist()}))


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "Agg"
    os.chdir(FILE.parent)
    asyncio.run(main())
