// must not: be compiled: a reference outlives what it refers to, by a function one of whose lifetimes is its type's
// stage: check
struct Inner<'b>(std::marker::PhantomData<&'b ()>);

impl<'b> Inner<'b> {
    fn translated<'a, T>(_: Option<&'a Inner<'b>>, value: &'b mut T) -> &'a mut T {
        value
    }
}

fn outliving<'a, 'b, T>(value: &'a mut T) -> &'b mut T {
    let translate: fn(_, &'a mut T) -> &'b mut T = Inner::translated;
    translate(None::<&Inner>, value)
}

fn gone() -> &'static mut Vec<i64> {
    outliving(&mut vec![1, 2, 3])
}

pub fn double(x: i64) -> i64 {
    if std::hint::black_box(gone as fn() -> _ as usize) == 0 { 0 } else { x + x }
}
