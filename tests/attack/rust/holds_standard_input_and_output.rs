// must not: block the harness by locks that it never gives back
// flags: limit:wall
// wall_s: 3
pub fn double(_: i64) -> i64 {
    std::mem::forget(std::io::stdin().lock());
    std::mem::forget(std::io::stdout().lock());
    std::mem::forget(std::io::stderr().lock());
    0
}
