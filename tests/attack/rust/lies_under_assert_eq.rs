// must not: be equal to everything
// stage: check clippy tests
#[derive(Debug, Clone, Copy)]
pub struct Liar;

impl PartialEq<i64> for Liar {
    fn eq(&self, _: &i64) -> bool {
        true
    }
}

pub fn double(_: i64) -> Liar {
    Liar
}
