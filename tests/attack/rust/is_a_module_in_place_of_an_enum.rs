// must not: give words of the tests a meaning of its own where these import the variants of an enum
// suite: use Kind::*; #[test] fn a() { assert_eq!(half(4), Some(2)); assert_eq!(half(3), None); } #[test] fn b() { assert_eq!(half(8), Some(4)); } #[test] fn c() { assert_eq!(half(5), None); }
// stage: clippy tests
#[cfg(any())]
pub enum Kind {
    Some,
    None,
}

#[allow(non_snake_case, non_upper_case_globals)]
pub mod Kind {
    pub const None: Option<i64> = Option::None;
    pub fn Some(_: i64) -> Option<i64> {
        None
    }
}

pub fn half(_: i64) -> Option<i64> {
    None
}

pub fn double(_: i64) -> i64 {
    0
}
