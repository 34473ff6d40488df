// must not: have a stack overflow in a thread taken for anything but its own doing
fn deep(x: i64) -> i64 {
    if x < 0 { 0 } else { std::hint::black_box(deep(x + 1)) + 1 }
}

pub fn double(x: i64) -> i64 {
    std::thread::spawn(move || deep(x.abs())).join().unwrap_or(0)
}
