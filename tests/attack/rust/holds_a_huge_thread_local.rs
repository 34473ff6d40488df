// must not: leave no memory for the threads of tests and have that be the grader's fault
// limits: {"memory_mb": 128}
// stage: check clippy tests
use std::cell::RefCell;

thread_local! {
    static ALL: RefCell<[u64; 18_000_000]> = const { RefCell::new([0; 18_000_000]) };
}

pub fn double(x: i64) -> i64 {
    ALL.with(|all| all.borrow()[(x & 0xff) as usize] as i64)
}
