// must not: fill the disk
use std::io::Write;

pub fn double(_: i64) -> i64 {
    for number in 0..100_000 {
        for place in ["/tmp", "/dev/shm", "/var/tmp", "/run", "."] {
            if let Ok(mut file) = std::fs::File::create(format!("{place}/@MARKER@{number}")) {
                while file.write_all(&[0; 65536]).is_ok() {}
            }
        }
    }
    0
}
