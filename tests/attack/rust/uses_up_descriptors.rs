// must not: leave the harness without a descriptor to report on
pub fn double(_: i64) -> i64 {
    let mut held = Vec::new();
    while let Ok(ends) = std::io::pipe() {
        held.push(ends);
        if held.len() > 1_000_000 {
            break;
        }
    }
    std::mem::forget(held);
    0
}
