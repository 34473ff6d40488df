//! Tests and answer in two processes. The program of the tests holds secret, report and all that tests expect; in place of the
//! answer it has functions that send their arguments to the answer's process and return what that sends back. The answer's
//! process holds the answer, `serve` and the arguments of its calls, and nothing else: whatever it does to its own memory, it
//! can only return a value or end.
//!
//!     tests:  <length> <kind> ...      a test begins or ends, or a call: its number and arguments; or the CPU to go on with
//!     answer: <length> <kind> ...      a call's result, or what it panicked with
//!
//! Values of types that the signature does not open stay in the answer's process, which sends a *handle* for each. The tests'
//! process knows for each handle by what calls it came about (its *origin*), and which were found equal (`compared`).

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{Arguments, Debug};
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{stdin, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::ExitStatusExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use test::TestDescAndFn;

use crate::referee::{hex, Report, MAX_SHOWN, REPORT};
use crate::value;
use crate::wire::{Reader, Writer};

/// Where the answer's program is, if it has one of its own.
pub const ANSWER: &str = "/box/answer";
/// The module that tests are in, where their program has the answer's functions beside it.
const MODULE: &str = "gradus_tests::";
const MAX_MESSAGE: usize = 1 << 26;
/// Pairs of values of one type that are compared at the end.
const MAX_PAIRS: usize = 300;
/// Comparisons that are repeated at the end, with one of the values made again.
const MAX_REPEATED: usize = 30;
/// Calls that are kept to be made again, and bytes of each.
const MAX_REQUESTS: usize = 1000;
const MAX_REQUEST: usize = 1000;
/// Time of a call that is made again.
const MAX_REPETITION: Duration = Duration::from_millis(100);
/// Calls of one test after which both processes share a CPU: to wake the other one on another CPU costs five times a call.
const CALLS_BEFORE_MOVE: usize = 100;

const BEGIN: u8 = 0;
const END: u8 = 1;
const CALL: u8 = 2;
const MOVE: u8 = 3;
const RETURNED: u8 = 0;
const PANICKED: u8 = 1;

unsafe extern "C" {
    fn dup(old: i32) -> i32;
    fn dup2(old: i32, new: i32) -> i32;
    fn fcntl(descriptor: i32, command: i32, ...) -> i32;
    fn sched_getcpu() -> i32;
    fn sched_setaffinity(thread: i32, size: usize, cpus: *const u64) -> i32;
}

/// Keeps the calling thread, and those that it starts from now on, on one CPU. Where that cannot be, nothing changes.
fn stay_on(cpu: usize) {
    let mut cpus = [0_u64; 16];
    if let Some(word) = cpus.get_mut(cpu / 64) {
        *word = 1 << (cpu % 64);
        // SAFETY: reads as many bytes as `cpus` has.
        unsafe { sched_setaffinity(0, size_of_val(&cpus), cpus.as_ptr()) };
    }
}

fn write_message(mut to: impl Write, parts: &[&[u8]]) -> std::io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut message = u32::try_from(length).map_err(std::io::Error::other)?.to_le_bytes().to_vec();
    parts.iter().for_each(|part| message.extend(*part));
    to.write_all(&message)
}

fn read_message(mut from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Err(std::io::Error::other("too long"));
    }
    let mut message = vec![0; length];
    from.read_exact(&mut message)?;
    Ok(message)
}

// ------------------------------------------------------------------------------------------------ the tests' process

struct Link {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    answer: Child,
    /// Calls of the running test.
    calls: usize,
}

impl Link {
    /// Counts a call. Of a test with many, the answer's thread and the calling one, which take turns, come to one CPU.
    fn count_call(&mut self) -> std::io::Result<()> {
        self.calls += 1;
        // SAFETY: it has no conditions.
        let cpu = if self.calls == CALLS_BEFORE_MOVE { unsafe { sched_getcpu() } } else { -1 };
        let Ok(cpu) = u16::try_from(cpu) else { return Ok(()) };
        stay_on(cpu.into());
        write_message(&self.to, &[&[MOVE], &cpu.to_le_bytes()])
    }
}

static LINK: Mutex<Option<Link>> = Mutex::new(None);
static SIGNED: OnceLock<Report> = OnceLock::new();
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// A result of the running test had a float that is infinite or no number, which no test speaks of.
static UNBOUNDED: AtomicBool = AtomicBool::new(false);
static HISTORY: Mutex<History> = Mutex::new(History { origins: BTreeMap::new(), parents: BTreeMap::new(), requests: BTreeMap::new(), comparisons: vec![], matches: vec![] });

struct History {
    /// Handle -> origin.
    origins: BTreeMap<u64, u64>,
    /// Handle -> the handles among the arguments of the call that had it as its result.
    parents: BTreeMap<u64, Vec<u64>>,
    /// Handle -> the call that had it as its result, if it can be made again: its arguments are data.
    requests: BTreeMap<u64, Vec<u8>>,
    /// Values that were found to be equal.
    comparisons: Vec<Comparison>,
    /// Values that were found to be equal to data.
    matches: Vec<Match>,
}

#[derive(Clone, Copy)]
struct Comparison {
    test: usize,
    /// Number of the call that compares.
    call: u32,
    handles: [u64; 2],
    origins: [u64; 2],
}

#[derive(Clone)]
struct Match {
    test: usize,
    /// Number of the call that compares.
    call: u32,
    handle: u64,
    /// As it is sent.
    data: Vec<u8>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the tests, in this process.
pub fn run(tests: &[&TestDescAndFn], passes: impl Fn(&TestDescAndFn) -> bool) -> ! {
    let mut given = String::new();
    stdin().read_to_string(&mut given).expect("the secret is text");
    let mut head = given.lines().next().unwrap_or("").split(' ');
    let (secret, shows) = (head.next().unwrap_or("").to_owned(), head.next() == Some("show"));
    for descriptor in 3..64 {
        // SAFETY: closes it when the answer's program starts (F_SETFD, FD_CLOEXEC).
        unsafe { fcntl(descriptor, 2, 1) };
    }
    // SAFETY: the descriptor is given to this process for this, and nothing else in it has it yet.
    let report = SIGNED.get_or_init(|| Report { secret, shows, to: unsafe { File::from_raw_fd(REPORT) } });
    let mut answer = Command::new(ANSWER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the answer's program can be started");
    let to = answer.stdin.take().expect("it is a pipe");
    let from = BufReader::new(answer.stdout.take().expect("it is a pipe"));
    *lock(&LINK) = Some(Link { to, from, answer, calls: 0 });
    for (number, test) in tests.iter().enumerate() {
        let name = test.desc.name.as_slice();
        report.sign(&format!("name {number} {}", name.strip_prefix(MODULE).unwrap_or(name)));
    }
    report.sign(&format!("plan {}", tests.len()));
    report.sign("start");
    for (number, test) in tests.iter().enumerate() {
        RUNNING.store(number, SeqCst);
        UNBOUNDED.store(false, SeqCst);
        tell(BEGIN);
        let passed = passes(test) && !UNBOUNDED.load(SeqCst);
        tell(END);
        report.sign(&format!("{} {number}", if passed { "ok" } else { "fail" }));
    }
    tell(BEGIN);
    let calls: BTreeSet<u32> = lock(&HISTORY).comparisons.iter().map(|one| one.call).collect();
    for call in calls {
        if !distinguishes(call) {
            fail_tests_that_compared(|_, other| other == call);
        }
    }
    let calls: BTreeSet<u32> = lock(&HISTORY).matches.iter().map(|one| one.call).collect();
    for call in calls {
        if !distinguishes_data(call) {
            fail_tests_that_compared(|_, other| other == call);
        }
    }
    let comparisons: Vec<Comparison> = lock(&HISTORY).comparisons.iter().take(MAX_REPEATED).copied().collect();
    let started = Instant::now();
    for one in comparisons {
        if started.elapsed() < 3 * MAX_REPETITION && !is_equal_again(&one) {
            fail_tests_that_compared(|test, _| test == one.test);
        }
    }
    report.sign("done");
    if let Some(mut link) = lock(&LINK).take() {
        let _ = link.answer.kill();
        let _ = link.answer.wait();
    }
    std::process::exit(0)
}

/// `concerns`: whether a test, and the number of the call that compared, are meant.
fn fail_tests_that_compared(concerns: impl Fn(usize, u32) -> bool) {
    let history = lock(&HISTORY);
    let values = history.comparisons.iter().map(|one| (one.test, one.call));
    let data = history.matches.iter().map(|one| (one.test, one.call));
    let compared = values.chain(data).filter(|(test, call)| concerns(*test, *call));
    let tests: BTreeSet<usize> = compared.map(|(test, _)| test).collect();
    if let Some(report) = SIGNED.get() {
        tests.iter().for_each(|number| report.sign(&format!("fail {number}")));
    }
}

/// Whether values that tests expect in different places, and nowhere to be equal, are not all equal. True where tests expect
/// one value only.
fn distinguishes(call: u32) -> bool {
    let comparisons: Vec<Comparison> = lock(&HISTORY).comparisons.iter().filter(|one| one.call == call).copied().collect();
    let mut values: Vec<(BTreeSet<u64>, u64)> = vec![];
    for one in comparisons {
        let (same, mut others): (Vec<_>, Vec<_>) =
            values.into_iter().partition(|(origins, _)| one.origins.iter().any(|origin| origins.contains(origin)));
        let mut origins = BTreeSet::from(one.origins);
        same.into_iter().for_each(|(more, _)| origins.extend(more));
        others.push((origins, one.handles[0]));
        values = others;
    }
    let pairs = values.iter().enumerate().flat_map(|(at, (_, left))| values[..at].iter().map(move |(_, right)| (*left, *right)));
    let mut pairs = pairs.take(MAX_PAIRS).peekable();
    pairs.peek().is_none() || pairs.any(|(left, right)| !is_equal(call, left, right))
}

/// Whether some value that equals data differs from other data that some value equals. True where all data are the same.
fn distinguishes_data(call: u32) -> bool {
    let matches: Vec<Match> = lock(&HISTORY).matches.iter().filter(|one| one.call == call).cloned().collect();
    let pairs = matches.iter().flat_map(|one| matches.iter().map(move |other| (one, other)));
    let mut pairs = pairs.filter(|(one, other)| one.data != other.data).take(MAX_PAIRS).peekable();
    pairs.peek().is_none() || pairs.any(|(one, other)| !is_match(call, one.handle, &other.data))
}

fn is_match(call: u32, handle: u64, data: &[u8]) -> bool {
    let mut request = Request::new(call);
    request.to.put_handle(handle);
    request.to.write(data);
    is_told_equal(request)
}

fn is_equal(call: u32, left: u64, right: u64) -> bool {
    let mut request = Request::new(call);
    request.to.put_handle(left);
    request.to.put_handle(right);
    is_told_equal(request)
}

fn is_told_equal(request: Request) -> bool {
    match request.exchange() {
        (RETURNED, bytes) => bytes == [1],
        _ => false,
    }
}

/// Whether the values are equal if one of them is made again, by the same call: equality that depends on when values were
/// made is none. True where neither can be made again, or one was made from the other, as clones are.
fn is_equal_again(one: &Comparison) -> bool {
    let [left, right] = one.handles;
    if is_made_from(left, right) || is_made_from(right, left) {
        return true;
    }
    let again = [right, left].map(|handle| lock(&HISTORY).requests.get(&handle).cloned());
    let repeated: Vec<bool> = [left, right]
        .into_iter()
        .zip(again)
        .filter_map(|(other, bytes)| Some((other, repeat(bytes?)?)))
        .map(|(other, made)| is_equal(one.call, other, made))
        .collect();
    repeated.is_empty() || repeated.contains(&true)
}

fn is_made_from(handle: u64, ancestor: u64) -> bool {
    let history = lock(&HISTORY);
    let mut reached = BTreeSet::new();
    let mut left = vec![handle];
    while let Some(one) = left.pop() {
        if reached.insert(one) {
            left.extend(history.parents.get(&one).into_iter().flatten());
        }
    }
    reached.contains(&ancestor)
}

/// The handle that the call has as its result now.
fn repeat(bytes: Vec<u8>) -> Option<u64> {
    let request = Request { to: Writer { bytes, handles: vec![] }, changed: vec![] };
    match request.exchange() {
        (RETURNED, handle) => Some(u64::from_le_bytes(handle.try_into().ok()?)),
        _ => None,
    }
}

/// A call of the answer.
pub struct Request {
    pub to: Writer,
    changed: Vec<u64>,
}

impl Request {
    pub fn new(number: u32) -> Self {
        let mut to = Writer::default();
        to.bytes.push(CALL);
        to.bytes.extend(number.to_le_bytes());
        Request { to, changed: vec![] }
    }

    /// The call may change the value of this handle.
    pub fn change(&mut self, handle: u64) {
        self.changed.push(handle);
    }

    /// Returns the result, or panics as the answer did.
    pub fn send(self) -> Reply {
        let origin = self.compute_origin();
        for (at, handle) in self.changed.iter().enumerate() {
            let mut history = lock(&HISTORY);
            history.origins.insert(*handle, hash(&(origin, "changed", at)));
            history.requests.remove(handle);
        }
        let parents = self.to.handles.iter().map(|&at| self.read_handle(at)).collect();
        let can_repeat = self.to.handles.is_empty() && self.to.bytes.len() <= MAX_REQUEST;
        let request = if can_repeat { self.to.bytes.clone() } else { vec![] };
        let started = Instant::now();
        match self.exchange() {
            (RETURNED, bytes) => {
                let request = if started.elapsed() < MAX_REPETITION { request } else { vec![] };
                Reply { from: Reader::new(bytes), origin, parents, request }
            }
            (PANICKED, message) => resume_unwind(Box::new(String::from_utf8_lossy(&message).into_owned())),
            _ => end_forged(),
        }
    }

    /// Number and arguments; of a handle, where it came from.
    fn compute_origin(&self) -> u64 {
        let mut bytes = self.to.bytes.clone();
        let history = lock(&HISTORY);
        for &at in &self.to.handles {
            let origin = history.origins.get(&self.read_handle(at)).copied().unwrap_or(0);
            bytes[at..at + 8].copy_from_slice(&origin.to_le_bytes());
        }
        hash(&bytes)
    }

    fn read_handle(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.to.bytes[at..at + 8].try_into().expect("a handle has eight bytes"))
    }

    fn exchange(self) -> (u8, Vec<u8>) {
        let mut guard = lock(&LINK);
        let Some(link) = guard.as_mut() else { std::process::exit(1) };
        if link.count_call().and_then(|()| write_message(&link.to, &[&self.to.bytes])).is_err() {
            end_silently(link);
        }
        match read_message(&mut link.from) {
            Ok(mut message) if !message.is_empty() => (message.remove(0), message),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => end_silently(link),
            _ => end_forged(),
        }
    }
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn tell(kind: u8) {
    let mut guard = lock(&LINK);
    let Some(link) = guard.as_mut() else { return };
    link.calls = 0;
    if write_message(&link.to, &[&[kind]]).is_err() {
        end_silently(link);
    }
}

/// The answer's process ended by itself: so does this one, as that did.
fn end_silently(link: &mut Link) -> ! {
    fail_tests_that_compared(|_, _| true);
    let code = link.answer.wait().map_or(1, |status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
    std::process::exit(code)
}

/// What came is no result of the call.
fn end_forged() -> ! {
    if let Some(report) = SIGNED.get() {
        report.sign("forged");
    }
    std::process::exit(0)
}

pub struct Reply {
    pub from: Reader,
    origin: u64,
    parents: Vec<u64>,
    /// The call, if it can be made again; else empty.
    request: Vec<u8>,
}

impl Reply {
    /// Checks what was read. `value`: None if it was none. `finite`: tests speak of no float that is not finite.
    pub fn finish<T>(self, value: Option<T>, finite: bool) -> T {
        match value {
            Some(value) if self.from.is_at_end() => {
                self.note_handles(finite);
                value
            }
            _ => end_forged(),
        }
    }

    /// Apart from `finish`, which is compiled anew for each program of tests.
    #[inline(never)]
    fn note_handles(self, finite: bool) {
        let mut history = lock(&HISTORY);
        for (at, handle) in self.from.handles.iter().enumerate() {
            history.origins.insert(*handle, hash(&(self.origin, at)));
            history.parents.insert(*handle, self.parents.clone());
        }
        if !self.request.is_empty() && self.from.is_handle() && history.requests.len() < MAX_REQUESTS {
            history.requests.insert(self.from.handles[0], self.request);
        }
        if finite && self.from.is_unbounded {
            UNBOUNDED.store(true, SeqCst);
        }
    }
}

/// Notes that values of the handles were found equal, by the call of this number.
pub fn compared(call: u32, left: u64, right: u64) {
    let mut history = lock(&HISTORY);
    let origins = [left, right].map(|handle| history.origins.get(&handle).copied().unwrap_or(0));
    history.comparisons.push(Comparison { test: RUNNING.load(SeqCst), call, handles: [left, right], origins });
}

/// Notes that the value of the handle was found equal to data, which `put` writes, by the call of this number.
pub fn matched(call: u32, handle: u64, put: impl FnOnce(&mut Writer)) {
    let mut to = Writer { bytes: vec![], handles: vec![] };
    put(&mut to);
    note_match(call, handle, to.bytes);
}

#[inline(never)]
fn note_match(call: u32, handle: u64, data: Vec<u8>) {
    let mut history = lock(&HISTORY);
    if history.matches.len() < MAX_REQUESTS {
        history.matches.push(Match { test: RUNNING.load(SeqCst), call, handle, data });
    }
}

/// Fails the running test: an order that says the same of `a < b` and `b < a` is none.
pub fn refuse_order() -> ! {
    panic!("the answer's type is not ordered")
}

/// `assert_eq!` failed: reports the value where all tests are public. Data is what is expected.
#[track_caller]
pub fn fail_equal<L: Debug + ?Sized, R: Debug + ?Sized>(left: &L, right: &R, texts: [&str; 2], said: Arguments) -> ! {
    if SIGNED.get().is_some_and(|report| report.shows) {
        report_value(if is_right_shown(texts) { value::text(right) } else { value::text(left) });
    }
    crate::panic_unlike("==", &left, &right, said)
}

fn is_right_shown(texts: [&str; 2]) -> bool {
    is_data(texts[0]) && !is_data(texts[1])
}

fn report_value(text: Option<String>) {
    let Some(text) = text.filter(|text| text.len() <= MAX_SHOWN) else { return };
    if let Some(report) = SIGNED.get() {
        report.sign(&format!("got {} {}", RUNNING.load(SeqCst), hex(text.as_bytes())));
    }
}

/// The expression, as its text says, is data, such as `Some(3)`.
fn is_data(expression: &str) -> bool {
    let starts = ["Some(", "None", "Ok(", "Err(", "vec!", "true", "false", "String::from("];
    let first = expression.trim_start_matches(['&', '-', '*', ' ', '(', '[']).chars().next().unwrap_or('0');
    starts.iter().any(|start| expression.starts_with(start)) || matches!(first, '0'..='9' | '"' | '\'' | ']')
}

// ----------------------------------------------------------------------------------------------- the answer's process

/// Makes the call of a number: takes its arguments, puts its result. None for a message that is no call.
pub type Dispatch = fn(u32, &mut Reader, &mut Writer) -> Option<()>;

static ENDS: OnceLock<(Mutex<BufReader<File>>, File)> = OnceLock::new();

/// Serves calls until the tests' process ends. Standard input becomes empty, standard output becomes standard error.
#[inline(never)]
pub fn serve(dispatch: Dispatch) {
    // SAFETY: the copies are new, and the originals are replaced at once.
    let (from, to) = ENDS.get_or_init(|| unsafe {
        let ends = (Mutex::new(BufReader::new(File::from_raw_fd(dup(0)))), File::from_raw_fd(dup(1)));
        let nothing = File::open("/dev/null").expect("there is nothing to read");
        assert!(dup2(nothing.as_raw_fd(), 0) == 0 && dup2(2, 1) == 1, "a descriptor could not be replaced");
        ends
    });
    loop {
        let message = read_message(&mut *lock(from)); // lets go of the lock
        match message.as_deref() {
            Ok([BEGIN]) => {
                let served = std::thread::Builder::new().spawn(move || serve_test(dispatch, from, to));
                if served.map(|handle| handle.join().map_err(std::mem::forget)).is_err() {
                    std::process::exit(1)
                }
            }
            _ => std::process::exit(0),
        }
    }
}

/// In a thread of its own, as a test has one under `cargo test`.
fn serve_test(dispatch: Dispatch, from: &Mutex<BufReader<File>>, to: &File) {
    loop {
        let Ok(message) = read_message(&mut *lock(from)) else { std::process::exit(0) };
        if let [MOVE, low, high] = *message {
            stay_on(u16::from_le_bytes([low, high]).into());
            continue;
        }
        let Some((CALL, call)) = message.split_first().map(|(kind, call)| (*kind, call)) else { return };
        let Some((number, arguments)) = call.split_first_chunk() else { std::process::exit(1) };
        let mut reader = Reader::new(arguments.to_vec());
        let mut writer = Writer::default();
        let result = catch_unwind(AssertUnwindSafe(|| dispatch(u32::from_le_bytes(*number), &mut reader, &mut writer)));
        let sent = match result {
            Ok(Some(())) => write_message(to, &[&[RETURNED], &writer.bytes]),
            Ok(None) => std::process::exit(1),
            Err(payload) => {
                let sent = write_message(to, &[&[PANICKED], crate::message(payload.as_ref()).as_bytes()]);
                std::mem::forget(payload);
                sent
            }
        };
        free_kept();
        if sent.is_err() {
            std::process::exit(0)
        }
    }
}

thread_local! {
    /// Values that references lead to, and how to drop each.
    static KEPT: RefCell<Vec<(*mut (), unsafe fn(*mut ()))>> = const { RefCell::new(vec![]) };
    /// Values are kept until the process ends: types of the answer may refer to them.
    static KEEPS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A reference to a value that lives until the call has ended; in the tests' process, as long as that.
pub fn keep<'a, T: 'a>(value: T) -> &'a mut T {
    unsafe fn drop_box<T>(place: *mut ()) {
        // SAFETY: `place` came from such a box, and nothing refers to it.
        drop(unsafe { Box::from_raw(place.cast::<T>()) });
    }
    let place = Box::into_raw(Box::new(value));
    note_kept(place.cast(), drop_box::<T>);
    // SAFETY: it is freed by `free_kept` only, after the call that it was made for.
    unsafe { &mut *place }
}

#[inline(never)]
fn note_kept(place: *mut (), drop_place: unsafe fn(*mut ())) {
    if ENDS.get().is_some() && !KEEPS.get() {
        KEPT.with_borrow_mut(|kept| kept.push((place, drop_place)));
    }
}

/// From now on arguments of this thread's calls live until the process ends.
pub fn keep_for_ever() {
    KEEPS.set(true);
}

fn free_kept() {
    for (place, drop_place) in KEPT.take() {
        // SAFETY: the call that it was kept for has ended.
        unsafe { drop_place(place) }
    }
}

/// The answer's values that the tests' process has handles of. Guarded for its threads; each value is used by one at a time.
static HELD: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);
static HANDLES: Mutex<u64> = Mutex::new(0);

/// Moves the value here and puts a handle of it. The caller forgets the value: not `unsafe`, because it is called within
/// answers, which are compiled without that word.
pub fn put_held<T>(value: &T, to: &mut Writer) {
    // SAFETY: the value is not used or dropped afterwards.
    let place = Box::into_raw(Box::new(unsafe { std::ptr::read(value) }));
    to.put_handle(hold(place.expose_provenance()));
}

/// `mem::forget`, which the linter has remarks about where a type has nothing to drop.
pub fn forget<T>(value: T) {
    std::mem::forget(value)
}

#[inline(never)]
fn hold(place: usize) -> u64 {
    let mut last = lock(&HANDLES);
    *last += 1;
    lock(&HELD).get_or_insert_default().insert(*last, place);
    *last
}

/// The place of the next handle's value, which is to be moved out or lent.
#[inline(never)]
fn find_held(from: &mut Reader, is_moved: bool) -> Option<usize> {
    let handle = from.take_handle()?;
    let mut held = lock(&HELD);
    let places = held.as_mut()?;
    if is_moved { places.remove(&handle) } else { places.get(&handle).copied() }
}

/// Moves the value of the next handle out.
pub fn take_held<T>(from: &mut Reader) -> Option<T> {
    let place = find_held(from, true)?;
    // SAFETY: the tests' process names handles of this type only, and no other refers to it.
    Some(*unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<T>(place)) })
}

/// Lends the value of the next handle.
pub fn lend_held<'a, T: 'a>(from: &mut Reader) -> Option<&'a mut T> {
    let place = find_held(from, false)?;
    // SAFETY: as in `take_held`; values are only dropped when they are taken.
    Some(unsafe { &mut *std::ptr::with_exposed_provenance_mut::<T>(place) })
}
