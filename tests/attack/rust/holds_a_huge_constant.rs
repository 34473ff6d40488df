// must not: use up the compiler's memory
// stage: check clippy tests
const fn filled() -> [u8; 1 << 31] {
    let mut all = [1; 1 << 31];
    all[0] = 2;
    all
}

pub static ALL: [u8; 1 << 31] = filled();

pub fn double(x: i64) -> i64 {
    ALL[(x & 0xff) as usize] as i64
}
