// must not: have a private function tested
// stage: check clippy
fn double(x: i64) -> i64 {
    x + x
}
