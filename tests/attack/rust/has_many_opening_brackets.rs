// must not: break whoever looks for their ends
// stage: check
@60000 times #[(@
pub fn double(_: i64) -> i64 {
    0
}
