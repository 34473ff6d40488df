// must not: have its macro define tests that pass beside the hidden ones
// stage: check clippy tests
// tests: use solution::double; solution::helpers!(); #[test] fn a() { assert_eq!(double(2), 4) } #[test] fn b() { assert_eq!(double(5), 10) } #[test] fn c() { assert_eq!(double(7), 14) }
#[macro_export]
macro_rules! helpers {
    () => {
        #[test]
        fn d() {}
        #[test]
        fn e() {}
        #[test]
        fn f() {}
    };
}

pub fn double(_: i64) -> i64 {
    0
}
