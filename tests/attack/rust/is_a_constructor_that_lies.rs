// must not: be a type in place of a function
// stage: check clippy tests
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct double(pub i64);

impl PartialEq<i64> for double {
    fn eq(&self, _: &i64) -> bool {
        true
    }
}

impl PartialEq<i32> for double {
    fn eq(&self, _: &i32) -> bool {
        true
    }
}
