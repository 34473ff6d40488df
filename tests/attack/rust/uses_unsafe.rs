// must not: use unsafe code
// flags: forbidden:unsafe
// stage: check
pub fn double(x: i64) -> i64 {
    let reading = &x as *const i64;
    unsafe { *reading }
}
