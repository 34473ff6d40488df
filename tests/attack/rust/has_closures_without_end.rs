// must not: keep the compiler busy with closures
// stage: check clippy tests
fn nest(f: impl Fn(i64) -> i64 + Copy) -> impl Fn(i64) -> i64 + Copy {
    move |x| f(f(x))
}

pub fn double(x: i64) -> i64 {
    nest(nest(nest(nest(nest(nest(nest(nest(nest(nest(nest(nest(|x| x * 0))))))))))))(x)
}
