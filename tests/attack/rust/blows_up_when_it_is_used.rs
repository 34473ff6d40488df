// must not: keep the compiler of the tests busy for ever
// stage: check clippy tests
pub struct Pair<T>(T);

pub trait Grows {
    fn grow(depth: u32) -> i64;
}

impl<T> Grows for Pair<T> {
    #[inline(never)]
    fn grow(depth: u32) -> i64 {
        if depth == 0 { 0 } else { <Pair<(T, u8)> as Grows>::grow(depth - 1) + <Pair<(u8, T)> as Grows>::grow(depth - 1) }
    }
}

pub fn double<T: Into<i64>>(x: T) -> i64 {
    <Pair<T> as Grows>::grow(x.into() as u32 & 1)
}
