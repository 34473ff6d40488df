// must not: negate to what a test hopes for, by an operator that a macro names
// suite: #[test] fn a() { assert!(!double(2)); } #[test] fn b() { assert!(!double(5)); } #[test] fn c() { assert!(!double(7)); }
// stage: check clippy
pub struct Doubled;

macro_rules! operator {
    ($name:ident, $method:ident) => {
        impl std::ops::$name for Doubled {
            type Output = bool;
            fn $method(self) -> bool {
                true
            }
        }
    };
}
operator!(Not, not);

pub fn double(_: i64) -> Doubled {
    Doubled
}
