// must not: be equal to everything where a test compares without assert_eq
// tests: use solution::double; #[test] fn a() { assert!(double(2) == 4); } #[test] fn b() { assert!(!(double(5) != 10)); } #[test] fn c() { if double(7) == 14 { return; } panic!("no"); }
// suite: #[test] fn a() { assert!(double(2) == 4); } #[test] fn b() { assert!(!(double(5) != 10)); } #[test] fn c() { if double(7) == 14 { return; } panic!("no"); }
// stage: check clippy tests
#[derive(Debug)]
pub struct Liar;

impl PartialEq<i32> for Liar {
    fn eq(&self, _: &i32) -> bool {
        true
    }
}

pub fn double(_: i64) -> Liar {
    Liar
}
