// must not: have the compiler tell of the tests what the answer makes it tell
#[deprecated(note = "where is it used?")]
#[must_use = "what is done with it?"]
pub fn double(_: i64) -> i64 {
    0
}
