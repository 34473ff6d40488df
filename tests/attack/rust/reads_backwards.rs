// must not: read to people as something else than to the compiler
// stage: check clippy tests
pub fn double(x: i64) -> i64 {
    /*‮ } ⁦if x > 0 ⁩ ⁦ begin */
    let _ = x;
    0
    /* end ‮ { ⁦*/
}
