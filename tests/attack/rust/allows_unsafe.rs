// must not: allow itself what is forbidden
// flags: forbidden:unsafe
// stage: check
#![allow(unsafe_code)]
#![warn(unsafe_code)]

#[allow(unsafe_code)]
unsafe fn zero() -> i64 {
    0
}

#[expect(unsafe_code)]
pub fn double(_: i64) -> i64 {
    unsafe { zero() }
}
