// must not: pass by a reference that outlives what it refers to, and no text says of what type the pointer is
struct Inner<'b>(#[allow(dead_code)] std::marker::PhantomData<&'b ()>);

fn translated<'a, 'b>(_: Option<&'a Inner<'b>>, value: &'b mut Vec<i64>) -> &'a mut Vec<i64> {
    value
}

fn called<R>(translate: fn(Option<&'static Inner<'static>>, &mut Vec<i64>) -> R, value: &mut Vec<i64>) -> R {
    translate(None, value)
}

fn gone() -> &'static mut Vec<i64> {
    called(translated, &mut vec![1, 2, 3])
}

pub fn double(x: i64) -> i64 {
    gone().first().map_or(x, |first| first ^ x)
}
