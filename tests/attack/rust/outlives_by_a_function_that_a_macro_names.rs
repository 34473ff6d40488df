// must not: pass by a reference that outlives what it refers to, by a function whose name a macro puts in its place
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
    gone().first().map_or(x, |first| first ^ x)
}
