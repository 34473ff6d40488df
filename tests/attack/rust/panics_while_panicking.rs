// must not: hide a failure behind the abort of a double panic
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("again")
    }
}

pub fn double(_: i64) -> i64 {
    let _bomb = Bomb;
    panic!("once")
}
