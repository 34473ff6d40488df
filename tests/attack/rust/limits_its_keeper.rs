// must not: turn the limits of its box against the box
use std::process::Command;

pub fn double(_: i64) -> i64 {
    let parent = std::os::unix::process::parent_id();
    for pid in [1, 2, parent, @PID@] {
        for limit in ["--cpu=0:0", "--nofile=0:0", "--fsize=0:0", "--as=1:1"] {
            let _ = Command::new("/usr/bin/prlimit").args(["--pid", &pid.to_string(), limit]).status();
        }
    }
    let _ = Command::new("/usr/bin/setpriv").args(["--reuid=0", "--clear-groups", "/box/program"]).status();
    0
}
