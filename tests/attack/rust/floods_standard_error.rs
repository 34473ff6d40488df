// must not: fill the grader's memory or disk with what it prints
// flags: limit:output
pub fn double(_: i64) -> i64 {
    loop {
        eprint!("{}", "x".repeat(65536));
    }
}
