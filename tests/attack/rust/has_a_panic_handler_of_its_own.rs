// must not: make the tests impossible to build and have that be the grader's fault
// stage: check clippy tests
#![no_std]

#[panic_handler]
fn panics(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

pub fn double(_: i64) -> i64 {
    0
}
