// must not: make the tests impossible to build and have that be the grader's fault
// stage: check clippy
#[link(name = "there_is_no_such_library")]
extern "C" {}

pub fn double(_: i64) -> i64 {
    0
}
