// must not: have the compiler wait for what nobody writes
// stage: check clippy tests
const INPUT: &[u8] = include_bytes!("/dev/stdin");
const RANDOM: &[u8] = include_bytes!("/dev/tty");

pub fn double(_: i64) -> i64 {
    (INPUT.len() + RANDOM.len()) as i64
}
