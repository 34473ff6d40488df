// must not: use attributes of the compiler's own
// stage: check
#[rustc_std_internal_symbol]
pub fn rust_panic() {}

#[lang = "sized"]
pub trait Sized {}

pub fn double(_: i64) -> i64 {
    0
}
