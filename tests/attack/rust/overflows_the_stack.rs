// must not: have a stack overflow taken for anything but its own doing
#[allow(unconditional_recursion)]
pub fn double(x: i64) -> i64 {
    std::hint::black_box(double(x + 1)) + 1
}
