// must not: use more memory than its limit
pub fn double(x: i64) -> i64 {
    let mut held: Vec<Vec<u8>> = Vec::new();
    for _ in 0..1_000_000 {
        held.push(vec![x as u8 | 1; 1 << 20]);
    }
    held.len() as i64
}
