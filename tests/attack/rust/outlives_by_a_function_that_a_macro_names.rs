// must not: be compiled: a reference outlives what it refers to, by a function whose name a macro puts in its place
// stage: check
macro_rules! named {
    ($name:ident) => {
        fn $name<'a, 'b, T>(_: Option<&'a &'b ()>, value: &'b mut T) -> &'a mut T {
            value
        }
    };
}

named!(translated);

fn outliving<'a, 'b, T>(value: &'a mut T) -> &'b mut T {
    let translate: fn(_, &mut T) -> &'b mut T = translated;
    translate(None, value)
}

fn gone() -> &'static mut Vec<i64> {
    outliving(&mut vec![1, 2, 3])
}

pub fn double(x: i64) -> i64 {
    if std::hint::black_box(gone as fn() -> _ as usize) == 0 { 0 } else { x + x }
}
