// must not: keep the type checker busy for ever
// stage: check clippy tests
fn pair<T: Clone>(x: T) -> (T, T) {
    (x.clone(), x)
}

fn deep<T: Clone>(x: T) -> impl Clone {
    pair(pair(pair(pair(pair(pair(pair(pair(x))))))))
}

pub fn double(x: i64) -> i64 {
    let _ = deep(deep(deep(deep(deep(deep(x))))));
    0
}
