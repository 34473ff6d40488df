// must not: stand in for a function of the C library
// flags: forbidden:export_name
// stage: check
#[export_name = "malloc"]
pub extern "C" fn own(_: usize) -> *mut u8 {
    std::ptr::null_mut()
}

pub fn double(_: i64) -> i64 {
    0
}
