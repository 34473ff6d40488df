// must not: break the compiler by depth
// stage: check clippy tests
pub fn double(_: i64) -> i64 {
    @20000 times (@0@20000 times )@
}
