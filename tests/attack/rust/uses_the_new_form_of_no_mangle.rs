// must not: choose names of symbols in the form that new editions want
// edition: 2024
// flags: forbidden:no_mangle
// stage: check
#[unsafe(no_mangle)]
pub extern "C" fn exit(_: i32) -> ! {
    loop {}
}

pub fn double(_: i64) -> i64 {
    0
}
