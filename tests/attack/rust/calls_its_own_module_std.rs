// must not: let tests use a module of its own when they say std
// suite: #[test] fn a() { for (x, y) in std::iter::zip([2], [4]) { assert_eq!(double(x), y); } } #[test] fn b() { for (x, y) in std::iter::zip([5], [10]) { assert_eq!(double(x), y); } } #[test] fn c() { for (x, y) in core::iter::zip([7], [14]) { assert_eq!(double(x), y); } }
// stage: clippy tests
pub mod std {
    pub mod iter {
        pub fn zip<const N: usize>(_: [i64; N], _: [i64; N]) -> ::std::option::IntoIter<(i64, i64)> {
            None.into_iter()
        }
    }
}

pub use crate::std as core;

pub fn double(_: i64) -> i64 {
    0
}
