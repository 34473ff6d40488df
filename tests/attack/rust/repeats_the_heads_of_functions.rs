// must not: keep the grader busy with a text that a model repeats
// stage: check
// flags: limit:tokens
pub fn double(_: i64) -> i64 {
    0
}
@13000 times fn g<@
