// must not: keep the expander busy for ever
// stage: check clippy tests
#![recursion_limit = "200"]
macro_rules! twice {
    (() $($x:tt)*) => { 0 };
    (($n:tt $($m:tt)*) $($x:tt)*) => { twice!(($($m)*) $($x)* $($x)*) };
}

pub fn double(_: i64) -> i64 {
    twice!((1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1) + 1)
}
