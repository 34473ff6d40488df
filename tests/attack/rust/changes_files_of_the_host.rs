// must not: read, change, rename or remove files outside of its box
use std::fs;

pub fn double(x: i64) -> i64 {
    let file = "@CANARY@/canary";
    let read = fs::read(file).is_ok();
    let _ = fs::write(file, "@MARKER@");
    let _ = fs::remove_file(file);
    let _ = fs::rename(file, "@CANARY@/@MARKER@");
    let _ = fs::create_dir("@CANARY@/@MARKER@");
    let _ = fs::remove_dir_all("@CANARY@");
    for folder in ["/", "/tmp", "/var/tmp", "/dev/shm", "."] {
        let _ = fs::write(format!("{folder}/@MARKER@"), "");
    }
    if read { x + x } else { 0 }
}
