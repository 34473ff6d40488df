// must not: pass a test by never returning to it
// flags: limit:cpu
pub fn double(_: i64) -> i64 {
    loop {
        std::hint::spin_loop();
    }
}
