// must not: read files of the host while it is compiled
// stage: check
const CANARY: &str = include_str!("@CANARY@/canary");
const SHADOW: &[u8] = include_bytes!("/etc/shadow");

const _: () = panic!("{}", CANARY);

pub fn double(x: i64) -> i64 {
    if CANARY.len() + SHADOW.len() > 0 { x + x } else { 0 }
}
