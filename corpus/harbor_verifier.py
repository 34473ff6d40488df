"""Verifier of an exported Harbor task: `python3 grade.py TASK ANSWER FOLDER`.

Runs in the verifier's container, which holds Gradus. A verdict is written to `FOLDER/reward.txt`,
the whole result to `FOLDER/gradus.json`. A fault writes no reward: Harbor then reports an error of
the verifier, and the trial has no reward. An answer that was not written is an empty one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MAX_ANSWER_BYTES = 2**20


def main(task_file: str, answer_file: str, folder: str) -> int:
    task = json.loads(Path(task_file).read_text(encoding="utf-8"))
    answer = Path(answer_file)
    reward = Path(folder, "reward.txt")
    reward.unlink(missing_ok=True)
    completion = ""
    if answer.is_file():
        with answer.open("rb") as file:
            completion = file.read(MAX_ANSWER_BYTES).decode("utf-8", "replace")
    submission = {"id": "answer", "completion": completion, "task": task["task"]}
    command = ["gradus", "grade", task["grader"], "-", "--quiet"]
    line = json.dumps(submission) + "\n"
    done = subprocess.run(command, input=line, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.strip():
        print(f"gradus ended with status {done.returncode} and no result", file=sys.stderr)
        return 3
    result = json.loads(done.stdout)
    Path(folder, "gradus.json").write_text(json.dumps(result), encoding="utf-8")
    if result["status"] != "graded":
        print(f"no reward: {result['fault']}", file=sys.stderr)
        return 3
    reward.write_text(f"{result['reward']}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
