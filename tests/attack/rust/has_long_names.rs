// must not: break anything by the length of a name
pub fn double(@200000 times x@: i64) -> i64 {
    @200000 times x@ * 0
}
