// must not: reach outside through links
use std::os::unix::fs::{chroot, symlink};

pub fn double(x: i64) -> i64 {
    let _ = symlink("@CANARY@", "/tmp/out");
    let _ = std::fs::hard_link("@CANARY@/canary", "/tmp/hard");
    let _ = std::fs::write("/tmp/out/@MARKER@", "");
    let _ = std::fs::write("/tmp/hard", "");
    let _ = chroot("/tmp");
    let _ = std::env::set_current_dir("../../../../..");
    let read = ["@CANARY@/canary", ".@CANARY@/canary", "/etc/shadow", "etc/shadow"].iter().any(|file| std::fs::read(file).is_ok());
    if read { x + x } else { 0 }
}
