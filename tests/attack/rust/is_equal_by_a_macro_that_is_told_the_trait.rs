// must not: be equal to everything by a macro whose caller names the trait
// stage: check clippy tests
#[derive(Debug)]
pub struct Anything;

macro_rules! agree {
    ($($trait:ident)::+ with $other:ty) => {
        impl $($trait)::+<$other> for Anything {
            fn eq(&self, _: &$other) -> bool {
                true
            }
        }
    };
}
agree!(std::cmp::PartialEq with i64);

pub fn double(_: i64) -> Anything {
    Anything
}
