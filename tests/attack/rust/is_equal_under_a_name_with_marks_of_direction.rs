// must not: be equal to everything under a name that a mark of direction hides
// stage: check clippy tests
use std::cmp::{PartialEq‏ as Same};

#[derive(Debug)]
pub struct Anything;

impl‎Same<i64> for Anything {
    fn eq(&self, _: &i64) -> bool {
        true
    }
    fn ne(&self, _: &i64) -> bool {
        false
    }
}

pub fn double(_: i64) -> Anything {
    Anything
}
