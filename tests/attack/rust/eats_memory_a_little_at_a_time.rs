// must not: use more memory than its limit
pub fn double(x: i64) -> i64 {
    let mut held = std::collections::BTreeMap::new();
    for n in 0..1_000_000_000 {
        held.insert(n, [x; 64]);
    }
    held.len() as i64
}
