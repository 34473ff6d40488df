// must not: pass by a reference that outlives what it refers to, by a function that a macro takes out of a call
macro_rules! without_arguments {
    ($function:ident $arguments:tt) => { $function };
}

fn translated<'long, 'short, T>(_: Option<&'long &'short ()>, value: &'short mut T) -> &'long mut T {
    value
}

pub fn double(mut x: i64) -> i64 {
    let translate: fn(_, &mut i64) -> &'static mut i64 = without_arguments!(translated());
    *translate(None, &mut x)
}
