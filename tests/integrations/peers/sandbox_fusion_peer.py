"""sandbox_fusion's submit() with a Rust program and cases."""

import asyncio
import json

import common
import sandbox_fusion
from common import FAULTY, SERVICE, run, told
from sandbox_fusion import SubmitRequest, TestConfig, submit

SUM = """```rust
use std::io::*;
fn main() {
    let mut s = String::new();
    stdin().read_to_string(&mut s).unwrap();
    let v: Vec<i64> = s.split_whitespace().map(|x| x.parse().unwrap()).collect();
    println!("{}", v[0] + v[1]);
}
```"""
common.ANSWERS = {
    "right": SUM,
    "stub": SUM.replace("v[0] + v[1]", "v[0]"),
    "broken": "```rust\nfn main() { let x: i32 = 'a\n```",
}
common.GRADER, common.COMMENT = "rust", "// {}"
CASES = [
    {"input": {"stdin": f"{a} {b}\n"}, "output": {"stdout": f"{a + b}\n"}}
    for a, b in ((1, 2), (10, -3), (7, 7))
]


common.TASK = json.dumps(
    {
        "cases": [
            {"stdin": one["input"]["stdin"], "stdout": one["output"]["stdout"]} for one in CASES
        ]
    }
)


async def reward(text, url=SERVICE):
    sandbox_fusion.set_endpoint(f"{url}/sandbox_fusion")
    config = TestConfig(
        language="rust", dataset_type="CommonOJDataset", provided_data={"test": CASES}
    )
    asked = SubmitRequest(dataset="d", id=1, completion=text, config=config)
    found = await asyncio.to_thread(submit, asked, max_attempts=2)
    assert found.accepted == all(test.passed for test in found.tests)
    return found.extra["reward"]


if __name__ == "__main__":
    run(told(reward, lambda: reward("x", FAULTY)))
