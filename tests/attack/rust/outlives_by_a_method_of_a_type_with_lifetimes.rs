// must not: be compiled: a reference outlives what it refers to, by a function whose lifetimes are its type's
// stage: check
struct Both<'a, 'b>(Option<&'a &'b ()>);

impl<'a, 'b> Both<'a, 'b> {
    fn translated<T>(self, value: &'b mut T) -> &'a mut T {
        let _ = self.0;
        value
    }
}

fn outliving<'a, 'b, T>(value: &'a mut T) -> &'b mut T {
    let translate: fn(Both<'b, 'b>, &'a mut T) -> &'b mut T = Both::translated;
    translate(Both(None), value)
}

fn gone() -> &'static mut Vec<i64> {
    outliving(&mut vec![1, 2, 3])
}

pub fn double(x: i64) -> i64 {
    if std::hint::black_box(gone as fn() -> _ as usize) == 0 { 0 } else { x + x }
}
