// must not: have the declared type where it is checked and one of its own where tests call it with a literal
// stage: check clippy tests
use std::fmt::Debug;

pub trait Number {
    type Double: Debug;
    fn doubled(self) -> Self::Double;
}

impl Number for i64 {
    type Double = i64;
    fn doubled(self) -> i64 {
        0
    }
}

#[derive(Debug)]
pub struct Liar;

impl PartialEq<i32> for Liar {
    fn eq(&self, _: &i32) -> bool {
        true
    }
}

impl Number for i32 {
    type Double = Liar;
    fn doubled(self) -> Liar {
        Liar
    }
}

pub fn double<N: Number>(x: N) -> N::Double {
    x.doubled()
}
