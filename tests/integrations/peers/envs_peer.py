"""verifiers' own `load_environment` with the wheel of the shipped tasks, which is on the path."""

import asyncio
import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(os.environ["SHIPPED"]).parents[2]))

import verifiers.v1 as vf
from common import SERVICE
from verifiers_peer import trace_of

from gradus.row_reader import read_rows


async def main():
    config = vf.SingleAgentEnvConfig.model_validate(
        {"taskset": {"id": "gradus_envs", "grader": "ocaml"}}
    )
    tasks = list(vf.load_environment(config).taskset.load())
    row = next(iter(read_rows(os.environ["SHIPPED"]))).values
    trace = trace_of(tasks[0], row["solution"])
    await tasks[0].setup(trace, None)
    await tasks[0].score(trace)
    return {"tasks": len(tasks), "service": SERVICE, "reward": trace.reward}


if __name__ == "__main__":
    print("RESULT " + json.dumps(asyncio.run(main())))
