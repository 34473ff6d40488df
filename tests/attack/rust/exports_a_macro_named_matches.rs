// must not: decide for tests what matches
// suite: #[test] fn a() { std::assert!(matches!(double(2), 4)); } #[test] fn b() { std::assert!(matches!(double(5), 10)); } #[test] fn c() { std::assert!(matches!(double(7), 14)); }
// stage: clippy tests
#[macro_export]
macro_rules! matches {
    ($($x:tt)*) => {
        true
    };
}

pub fn double(_: i64) -> i64 {
    0
}
