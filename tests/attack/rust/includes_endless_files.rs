// must not: have the compiler read for ever
// stage: check
const ZEROES: &[u8] = include_bytes!("/dev/zero");

pub fn double(_: i64) -> i64 {
    ZEROES[0] as i64
}
