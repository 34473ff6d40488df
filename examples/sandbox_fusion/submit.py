"""Grades one Rust program on its cases with SandboxFusion's own client."""

import os

from sandbox_fusion import SubmitRequest, TestConfig, set_endpoint, submit

PROGRAM = """```rust
fn main() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let sum: i64 = line.split_whitespace().map(|word| word.parse::<i64>().unwrap()).sum();
    println!("{sum}");
}
```"""
CASES = [
    {"input": {"stdin": f"{a} {b}\n"}, "output": {"stdout": f"{a + b}\n"}}
    for a, b in ((1, 2), (10, -3), (7, 7))
]

if __name__ == "__main__":
    set_endpoint(os.environ.get("GRADUS_URL", "http://127.0.0.1:8000") + "/sandbox_fusion")
    config = TestConfig(
        language="rust", dataset_type="CommonOJDataset", provided_data={"test": CASES}
    )
    result = submit(SubmitRequest(dataset="example", id=1, completion=PROGRAM, config=config))
    print(result.accepted, result.extra["reward"])
