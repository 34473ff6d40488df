// must not: keep whoever reads comments busy for ever
// stage: check extract
pub fn double(_: i64) -> i64 { 0 }
@150000 times /*@
