"""Runs inside the box: calls a function of the answer and reports its value as JSON on descriptor
3. The answer can report another value, which is worth what a function that returns it is."""

import json
import os
import sys
import types

request = json.loads(sys.stdin.buffer.read())
with open(request["file"], "rb") as file:
    source = file.read()
answer = sys.modules["answer"] = types.ModuleType("answer")
exec(compile(source, "answer.py", "exec"), answer.__dict__)  # noqa: S102
function = getattr(answer, request["function"], None)
if function is None:
    function = getattr(answer.Solution(), request["function"])
value = json.dumps(function(*request["arguments"]))
report = value.encode()
while report:
    report = report[os.write(3, report) :]
