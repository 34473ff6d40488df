// must not: have the death of the program taken for anything but its own doing
pub fn double(_: i64) -> i64 {
    std::process::abort()
}
