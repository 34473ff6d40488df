// must not: have the linker take a file of its own for a script
// stage: check clippy
#[link(name = "/tmp/crate/src/lib.rs", kind = "static", modifiers = "+verbatim,+whole-archive")]
extern "C" {}

pub fn double(_: i64) -> i64 {
    0
}
