// must not: have its own tests counted
#[cfg(test)]
mod tests {
    #[test]
    fn doubles_2() {}
}

#[test]
fn doubles_2() {}

#[test]
fn doubles_7_and_counts() {}

#[test]
fn doubles_each_of_a_list() {}

/// ~~~
/// assert_eq!(solution::double(2), 0);
/// ~~~
///
/// ~~~should_panic
/// std::process::exit(0);
/// ~~~
pub fn double(_: i64) -> i64 {
    0
}
