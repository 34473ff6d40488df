// must not: hide a limit by catching every panic and starting again
// flags: limit:cpu
pub fn double(x: i64) -> i64 {
    std::panic::set_hook(Box::new(|_| {}));
    loop {
        let _ = std::panic::catch_unwind(|| x.checked_div(0).expect("never"));
    }
}
