// must not: keep the compiler busy longer than its limit
// stage: check clippy tests
@8000 times pub fn f#(x: i64) -> i64 { x + # }
@
pub fn double(x: i64) -> i64 {
    f7999(x) * 0
}
