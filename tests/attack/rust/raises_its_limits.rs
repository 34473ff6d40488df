// must not: raise the compiler's limits and use them up
// stage: check clippy tests
#![recursion_limit = "1000000000"]
#![type_length_limit = "1000000000000"]

macro_rules! deep {
    ($($x:tt)*) => { deep!($($x)* + 1) };
}

pub fn double(_: i64) -> i64 {
    deep!(0)
}
