//! Runs the tests of one answer. The process that runs them holds no secret and no report: a referee beside it (`referee.rs`)
//! says what runs next and by which of two tokens to tell how that ended. Judges nothing itself.
//!
//! Every test has a thread of its own, as under `cargo test`, so that stacks are as deep as there. It has no name, and
//! assertions say no values: what a test is called and what it expects is nothing that the answer should learn.
#![feature(formatting_options, specialization, test)]
#![allow(incomplete_features)]
extern crate test;

mod referee;
pub mod remote;
mod value;
pub mod wire;

use std::any::{type_name, Any};
use std::fmt::{Arguments, Debug};
use std::fs::File;
use std::io::{pipe, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::OnceLock;
use test::{ShouldPanic, TestDescAndFn, TestFn};

use referee::{hex, random, referee, Child, NUMBER, PASSED, VALUE};

unsafe extern "C" {
    fn fork() -> i32;
    fn dup2(old: i32, new: i32) -> i32;
}

type Body = fn() -> Result<(), String>;

/// Tests that fail, each in one of the ways in which tests do.
const WAYS_TO_FAIL: [(ShouldPanic, Body); 4] = [
    (ShouldPanic::No, || fail("assertion failed")),
    (ShouldPanic::No, || panic!("assertion failed")),
    (ShouldPanic::No, || Err(String::new())),
    (ShouldPanic::Yes, || Ok(())),
];
const DECOYS: usize = 32;

/// What the compiler's `--test` mode calls in place of libtest.
pub fn run(tests: &[&TestDescAndFn]) {
    let mut tests: Vec<&TestDescAndFn> = tests.to_vec();
    tests.sort_by(|a, b| a.desc.name.as_slice().cmp(b.desc.name.as_slice()));
    if std::fs::exists(remote::ANSWER).unwrap_or(false) {
        remote::run(&tests, |test| match test.testfn {
            TestFn::StaticTestFn(body) => passes(test.desc.should_panic, body),
            _ => false,
        });
    }
    let mut source = File::open("/dev/urandom").expect("there are random numbers");
    let decoys: Vec<String> = (0..DECOYS).map(|_| hex(&random::<{ NUMBER / 2 }>(&mut source))).collect();
    let (hears, told) = pipe().expect("there are pipes");
    let (said, says) = pipe().expect("there are pipes");
    // SAFETY: this process has no other thread.
    match unsafe { fork() } {
        -1 => panic!("there is no second process"),
        0 => {
            drop((told, said));
            serve(hears, says, &tests, &decoys)
        }
        pid => {
            drop((hears, says));
            let names: Vec<&str> = tests.iter().map(|test| test.desc.name.as_slice()).collect();
            referee(Child { pid, told, said: BufReader::new(said) }, &names, &decoys, &mut source)
        }
    }
}

/// Runs what is released, in the process that has neither the secret nor the report.
fn serve(hears: PipeReader, says: PipeWriter, tests: &[&TestDescAndFn], decoys: &[String]) -> ! {
    let nothing = File::open("/dev/null").expect("there is nothing to read");
    for descriptor in [0, 3] {
        // SAFETY: they are replaced at once: no other file can take their place.
        let replaced = unsafe { dup2(nothing.as_raw_fd(), descriptor) };
        assert!(replaced == descriptor, "a descriptor could not be replaced");
    }
    let says = SAYS.get_or_init(|| says);
    let mut tests = tests.iter();
    for release in BufReader::new(hears).lines().map_while(Result::ok) {
        let passed = match decoys.iter().position(|number| *number == release[..NUMBER]) {
            Some(decoy) => {
                let (should_panic, body) = WAYS_TO_FAIL[decoy % WAYS_TO_FAIL.len()];
                passes(should_panic, body)
            }
            None => tests.next().is_some_and(|test| match test.testfn {
                TestFn::StaticTestFn(body) => passes(test.desc.should_panic, body),
                _ => false,
            }),
        };
        let token = if passed { &release[NUMBER..PASSED] } else { &release[PASSED..] };
        say(says, token);
    }
    std::process::exit(0)
}

/// Where the referee hears this process.
static SAYS: OnceLock<PipeWriter> = OnceLock::new();

fn say(mut to: &PipeWriter, text: &str) {
    if to.write_all(format!("{text}\n").as_bytes()).is_err() {
        std::process::exit(0)
    }
}

/// Tells the referee the value that a test compares with what only the referee knows. The test goes on as if it were equal.
pub fn told<T: Debug + ?Sized>(value: &T) {
    tell_text(value::text(value));
}

fn tell_text(text: Option<String>) {
    if let Some(to) = SAYS.get() {
        say(to, &format!("{VALUE}{}", text.unwrap_or_default()));
    }
}

/// An assertion of the running test failed, even if somebody caught what it raised.
static FAILED: AtomicBool = AtomicBool::new(false);
/// The running test should panic with a certain message, so assertions say theirs.
static SPEAKING: AtomicBool = AtomicBool::new(false);

fn passes(should_panic: ShouldPanic, body: Body) -> bool {
    FAILED.store(false, SeqCst);
    SPEAKING.store(matches!(should_panic, ShouldPanic::YesWithMessage(_)), SeqCst);
    // The result is caught inside of the thread and only a bool leaves it: panics may carry values whose Drop is code.
    let judged = std::thread::Builder::new().spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(body));
        let passed = judge(should_panic, &result);
        std::mem::forget(result);
        passed
    });
    match judged.map(|handle| handle.join()) {
        Ok(Ok(passed)) => passed,
        Ok(Err(payload)) => {
            std::mem::forget(payload);
            false
        }
        Err(_) => false,
    }
}

fn judge(should_panic: ShouldPanic, result: &Result<Result<(), String>, Box<dyn Any + Send>>) -> bool {
    match (should_panic, result) {
        (ShouldPanic::No, Ok(returned)) => returned.is_ok() && !FAILED.load(SeqCst),
        (ShouldPanic::Yes, Err(_)) => true,
        (ShouldPanic::YesWithMessage(expected), Err(payload)) => message(payload.as_ref()).contains(expected),
        _ => false,
    }
}

/// An assertion of the tests has failed.
#[track_caller]
pub fn fail(what: &str) -> ! {
    FAILED.store(true, SeqCst);
    panic!("{what}")
}

/// Should a failed assertion say what the test has it say?
pub fn speaking() -> bool {
    SPEAKING.load(SeqCst)
}

/// What assertions need is compiled here, as far as it can be, and not with each program of tests.
#[track_caller]
pub fn fail_condition(condition: &str) -> ! {
    if speaking() {
        fail(&format!("assertion failed: {condition}"))
    }
    fail("assertion failed")
}

#[track_caller]
pub fn fail_comparison(sign: &str, left: &dyn Debug, right: &dyn Debug, said: Arguments) -> ! {
    if speaking() {
        panic_unlike(sign, left, right, said)
    }
    fail(&format!("assertion `left {sign} right` failed"))
}

/// Panics in the standard library's words.
#[track_caller]
fn panic_unlike(sign: &str, left: &dyn Debug, right: &dyn Debug, said: Arguments) -> ! {
    panic!("assertion `left {sign} right` failed{said}\n  left: {left:?}\n right: {right:?}")
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("")
}

/// Panics when a comparison is equality in the answer's words: its types are not the same on both sides, or they are
/// without any value. One without a value may be named, as errors are: `by_name`, either side is a path. `derived`: the answer
/// has no `PartialEq` that is written by hand.
pub fn fair<L: Debug + ?Sized, R: Debug + ?Sized>(left: &L, right: &R, answer: &str, by_name: bool, derived: bool) {
    let is_empty = std::mem::size_of_val(left) == 0 && std::mem::size_of_val(right) == 0;
    refuse_own_words([type_name::<L>(), type_name::<R>()], answer, is_empty && !by_name, derived)
}

#[inline(never)]
fn refuse_own_words(types: [&str; 2], answer: &str, is_empty: bool, derived: bool) {
    let [of_left, of_right] = types.map(|of_type| paths(of_type, answer));
    if of_left != of_right {
        fail("a value of the answer's own type stands in for one of another type");
    }
    if !derived && !of_left.is_empty() {
        fail("a value of the answer's own type says itself what it is equal to");
    }
    if is_empty && is_own(types[0], answer) {
        fail("a type of the answer without any value is equal to itself whatever the answer does");
    }
}

/// The type is the answer's own, or a reference to one.
fn is_own(of_type: &str, answer: &str) -> bool {
    let of_type = of_type.trim_start_matches(['&', ' ']).trim_start_matches("mut ");
    of_type.strip_prefix(answer).is_some_and(|rest| rest.starts_with("::"))
}

/// The expression, as its text says, is a path, as `Error::Empty` is.
pub const fn is_path(expression: &str) -> bool {
    let bytes = expression.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let one = bytes[at];
        if !(one.is_ascii_alphanumeric() || one == b'_' || one == b':' || one == b'&' || one == b' ') {
            return false;
        }
        at += 1;
    }
    at > 0 && !bytes[0].is_ascii_lowercase() || contains(bytes, b"::")
}

const fn contains(text: &[u8], two: &[u8; 2]) -> bool {
    let mut at = 1;
    while at < text.len() {
        if text[at - 1] == two[0] && text[at] == two[1] {
            return true;
        }
        at += 1;
    }
    false
}

/// The types of the crate `answer` that the type's name holds, sorted, each once.
fn paths<'a>(of_type: &'a str, answer: &str) -> Vec<&'a str> {
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let of_answer = |path: &&str| path.strip_prefix(answer).is_some_and(|rest| rest.starts_with("::"));
    let mut found: Vec<&str> = of_type.split(|c: char| !inside(c)).filter(of_answer).collect();
    found.sort_unstable();
    found.dedup();
    found
}
