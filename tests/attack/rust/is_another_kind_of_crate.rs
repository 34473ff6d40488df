// must not: be compiled as something else
// stage: check clippy tests
#![crate_type = "proc-macro"]
#![crate_type = "bin"]
#![crate_type = "cdylib"]

pub fn double(_: i64) -> i64 {
    0
}
