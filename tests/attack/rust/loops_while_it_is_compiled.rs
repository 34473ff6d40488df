// must not: keep the compiler busy for ever
// flags: limit:compile
// stage: check
#![allow(long_running_const_eval)]

const fn endless() -> i64 {
    let mut n = 0u64;
    while n < u64::MAX {
        n = n.wrapping_add(1) & 0xff;
    }
    0
}

const FOR_EVER: i64 = endless();

pub fn double(_: i64) -> i64 {
    FOR_EVER
}
