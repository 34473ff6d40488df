// must not: keep the compiler busy longer than its limit
// stage: check clippy tests
pub fn double(x: i64) -> i64 {
    match (x, x, x) {
        @6000 times (#, y, _) | (_, #, y) if y == # => #,
        @
        _ => 0,
    }
}
