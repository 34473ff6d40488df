// must not: be too large to start and have that be the grader's fault
// stage: check clippy tests
// limits: {"memory_mb": 128}
use std::sync::RwLock;

static ALL: RwLock<[u64; 30_000_000]> = RwLock::new([0; 30_000_000]);

pub fn double(x: i64) -> i64 {
    ALL.read().map_or(0, |all| all[(x & 0xff) as usize] as i64)
}
