// must not: run before the harness does
// flags: forbidden:link_section
// stage: check
#[used]
#[link_section = ".init_array"]
static BEFORE: extern "C" fn() = before;

extern "C" fn before() {
    std::process::exit(0)
}

pub fn double(_: i64) -> i64 {
    0
}
