// must not: hide a forbidden word between characters that look like ends of texts
// flags: forbidden:unsafe
// stage: check
const _ONE: (char, u8, &str, &[u8]) = ('"', b'"', r#""""#, br##""#"##);
const _TWO: (char, &str, &std::ffi::CStr) = ('\'', "\\", c"\"");
#[allow(unused_labels)]
fn _three<'a>(x: &'a str) -> &'a str { 'b: { x } } /* /* " */ " */ // "
pub fn double(x: i64) -> i64 { unsafe { std::ptr::read(&x) } }
const _FOUR: char = '"';
