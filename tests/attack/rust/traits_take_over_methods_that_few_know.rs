// must not: answer for methods of the standard library that are on nobody's list
// suite: #[test] fn a() { let x = vec![double(2)]; assert!(x.binary_search(&4).is_ok()); } #[test] fn b() { let x = double(5).to_string(); assert!(x.split_once('1').is_some()); } #[test] fn c() { assert!([double(7)].repeat(2).binary_search(&14).is_ok()); }
// stage: clippy tests
pub trait Lies: Sized {
    fn binary_search<T>(self, _: T) -> Result<(), ()> {
        Ok(())
    }
    fn split_once<T>(self, _: T) -> Option<()> {
        Some(())
    }
}

impl<T> Lies for T {}

pub fn double(_: i64) -> i64 {
    0
}
