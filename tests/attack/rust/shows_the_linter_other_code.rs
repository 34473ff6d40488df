// must not: be judged by the style of code that is not run
#![deny(clippy::unwrap_used)]
#![allow(unused)]

#[cfg(clippy)]
pub fn double(_: i64) -> i64 {
    Some(0).unwrap()
}

#[cfg(not(clippy))]
pub fn double(_: i64) -> i64 {
    let mut x = 0;
    x = x + 0 * 1;
    return x.clone();
}
