// must not: be a value that can be called
// stage: clippy tests
#[allow(non_upper_case_globals)]
pub const double: fn(i64) -> i64 = |_| 0;
