// must not: have settings of its own change how the tests are run
pub fn double(_: i64) -> i64 {
    for (name, value) in [("RUST_TEST_THREADS", "0"), ("RUST_MIN_STACK", "1"), ("RUST_BACKTRACE", "full"), ("LD_PRELOAD", "/x")] {
        std::env::set_var(name, value);
    }
    let _ = std::env::set_current_dir("/");
    0
}
