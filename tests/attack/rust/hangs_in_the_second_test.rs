// must not: lose the test that it passed before it hung, or gain another
// earned: 1
// flags: limit:cpu
pub fn double(x: i64) -> i64 {
    while x != 2 {
        std::hint::spin_loop();
    }
    4
}
