// must not: run programs of the host
use std::process::Command;

pub fn double(_: i64) -> i64 {
    for shell in ["/bin/sh", "/usr/bin/env", "/usr/bin/python3", "/bin/busybox", "/usr/bin/perl", "sh"] {
        let _ = Command::new(shell).args(["-c", "touch @CANARY@/@MARKER@; echo > @CANARY@/canary"]).status();
    }
    let _ = Command::new("touch").arg("@CANARY@/@MARKER@").status();
    0
}
