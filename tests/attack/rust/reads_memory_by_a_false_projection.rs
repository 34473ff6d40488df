// must not: turn one type into another by a trait object that is its own exception (rust-lang/rust#57893)
// stage: check clippy tests
trait Object<U> {
    type Output;
}

impl<T: ?Sized, U> Object<U> for T {
    type Output = U;
}

fn same<T: ?Sized, U>(x: <T as Object<U>>::Output) -> U {
    x
}

fn transmuted<T, U>(x: T) -> U {
    same::<dyn Object<U, Output = T>, U>(x)
}

fn number(words: [u32; 2]) -> i64 {
    transmuted(words)
}

pub fn double(x: i64) -> i64 {
    let pointer: &'static i64 = transmuted(x + 8);
    *pointer + number([1, 2])
}
