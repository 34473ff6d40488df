// must not: leave the tests without what they test and have that be the grader's fault
// stage: clippy
pub fn triple(x: i64) -> i64 {
    3 * x
}
