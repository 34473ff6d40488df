// must not: have a macro put code before the harness
// flags: forbidden:link_section
// stage: check
macro_rules! early {
    ($place:ident) => {
        #[used]
        #[cfg_attr(all(), $place = ".init_array")]
        static BEFORE: extern "C" fn() = before;
    };
}

early!(link_section);

extern "C" fn before() {
    std::process::exit(0)
}

pub fn double(_: i64) -> i64 {
    0
}
