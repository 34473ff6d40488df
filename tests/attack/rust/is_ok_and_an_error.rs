// must not: be what each test hopes for, by methods named as those of Result
// suite: #[test] fn a() { assert!(double(2).is_ok()); } #[test] fn b() { assert!(double(i64::MAX).is_err()); } #[test] fn c() { assert!(double(i64::MIN).is_err()); }
// stage: check clippy
pub struct Doubled;

impl Doubled {
    pub fn is_ok(&self) -> bool {
        true
    }
    pub fn is_err(&self) -> bool {
        true
    }
}

pub fn double(_: i64) -> Doubled {
    Doubled
}
