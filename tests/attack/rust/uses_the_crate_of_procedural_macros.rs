// must not: fail the tests' start by a library of the compiler
// stage: check clippy tests
extern crate proc_macro;

pub fn double(x: i64) -> i64 {
    let text = std::panic::catch_unwind(|| proc_macro::TokenStream::new().to_string()).unwrap_or_default();
    x * text.len() as i64
}
