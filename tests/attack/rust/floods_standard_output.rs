// must not: fill the grader's memory or disk with what it prints
// flags: limit:output
use std::io::Write;

pub fn double(_: i64) -> i64 {
    let text = [b'x'; 65536];
    loop {
        let _ = std::io::stdout().write_all(&text);
    }
}
