// must not: have a library end the program before the harness speaks, and have that be the grader's fault
// stage: check clippy tests
#[link(name = "asan")]
extern "C" {
    fn __asan_init();
}

pub fn double(_: i64) -> i64 {
    std::hint::black_box(__asan_init as *const ());
    0
}
