// must not: leave a process that lives on after its verdict
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub fn double(_: i64) -> i64 {
    let programs = [("/bin/sh", ["-c", "sleep 300"]), ("/usr/bin/sleep", ["300", "1"]), ("/usr/bin/setpriv", ["sleep", "300"])];
    for (program, arguments) in programs {
        let mut command = Command::new(program);
        command.args(arguments).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = command.spawn();
    }
    0
}
