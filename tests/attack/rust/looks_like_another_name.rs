// must not: be taken for the function by the look of its name
// stage: check clippy
pub fn dоuble(x: i64) -> i64 {
    x + x
}
