// must not: be a success and an error in turn, by what its type leads to
// suite: #[test] fn a() { let x = double(2); assert!(x.is_ok()); assert!(x.is_err()); } #[test] fn b() { let x = double(3); assert!(x.is_ok()); assert!(x.is_err()); } #[test] fn c() { let x = double(4); assert!(x.is_ok()); assert!(x.is_err()); }
// stage: check clippy
use std::sync::atomic::{AtomicBool, Ordering};

pub struct Doubled(AtomicBool);

impl std::ops::Deref for Doubled {
    type Target = Result<(), ()>;
    fn deref(&self) -> &Self::Target {
        if self.0.fetch_xor(true, Ordering::SeqCst) { &Err(()) } else { &Ok(()) }
    }
}

pub fn double(_: i64) -> Doubled {
    Doubled(AtomicBool::new(false))
}
