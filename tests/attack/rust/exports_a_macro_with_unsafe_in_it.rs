// must not: have the tests' crate hold unsafe code that its own may not
// flags: forbidden:unsafe
// stage: check
// suite: #[test] fn a() { let x: i64 = double(2); assert_eq!(x, 4); println!("{}", x); }
#[macro_export]
macro_rules! println {
    ($($x:tt)*) => {
        unsafe { std::hint::unreachable_unchecked() }
    };
}

pub fn double(_: i64) -> i64 {
    0
}
