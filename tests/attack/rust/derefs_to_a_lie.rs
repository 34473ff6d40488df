// must not: give a method call another value than a comparison
// tests: use solution::double; #[test] fn a() { assert_eq!(double(2).to_string(), "4"); } #[test] fn b() { assert_eq!(double(5).pow(2), 100); } #[test] fn c() { assert_eq!(double(7) + 1, 15); }
// suite: #[test] fn a() { assert_eq!(double(2).to_string(), "4"); } #[test] fn b() { assert_eq!(double(5).pow(2), 100); } #[test] fn c() { assert_eq!(double(7) + 1, 15); }
// stage: check clippy tests
use std::fmt;
use std::ops::{Add, Deref};

#[derive(Debug)]
pub struct Liar;

impl Deref for Liar {
    type Target = i64;
    fn deref(&self) -> &i64 {
        &10
    }
}

impl fmt::Display for Liar {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("0")
    }
}

impl Add<i32> for Liar {
    type Output = Liar;
    fn add(self, _: i32) -> Liar {
        self
    }
}

impl PartialEq<i32> for Liar {
    fn eq(&self, _: &i32) -> bool {
        true
    }
}

impl Liar {
    pub fn pow(&self, _: u32) -> Liar {
        Liar
    }
}

pub fn double(_: i64) -> Liar {
    Liar
}
