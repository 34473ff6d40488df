// must not: lie behind `impl Trait`
// stage: check clippy tests
use std::fmt::Debug;

#[derive(Debug)]
struct Liar;

impl PartialEq<i32> for Liar {
    fn eq(&self, _: &i32) -> bool {
        true
    }
}

impl PartialEq<i64> for Liar {
    fn eq(&self, _: &i64) -> bool {
        true
    }
}

pub fn double(_: i64) -> impl PartialEq<i32> + PartialEq<i64> + Debug {
    Liar
}
