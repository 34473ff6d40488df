// must not: pass by a reference that outlives what it refers to (rust-lang/rust#25860)
fn translated<'a, 'b, T>(_: Option<&'a &'b ()>, value: &'b mut T) -> &'a mut T {
    value
}

fn outliving<'a, 'b, T>(value: &'a mut T) -> &'b mut T {
    let translate: fn(_, &mut T) -> &'b mut T = translated;
    translate(None, value)
}

fn gone() -> &'static mut Vec<i64> {
    outliving(&mut vec![1, 2, 3])
}

pub fn double(x: i64) -> i64 {
    gone().first().map_or(x, |first| first ^ x)
}
