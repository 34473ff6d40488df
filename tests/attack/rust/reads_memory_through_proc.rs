// must not: read or write its memory as a file
use std::fs::{read_to_string, File};
use std::os::unix::fs::FileExt;

pub fn double(x: i64) -> i64 {
    let maps = read_to_string("/proc/self/maps").or_else(|_| read_to_string("/proc/thread-self/maps")).unwrap_or_default();
    let memory = File::options().read(true).write(true).open("/proc/self/mem");
    let found = memory.is_ok_and(|memory| memory.write_at(b"\xc3", 0).is_ok()) || !maps.is_empty();
    let told = std::fs::read("/proc/self/environ").is_ok() || std::fs::read("/proc/self/cmdline").is_ok();
    if found || told { x + x } else { 0 }
}
