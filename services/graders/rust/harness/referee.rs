//! The process beside the one that runs an answer. It alone holds the secret and the report: the answer's process, however
//! much of its own memory an answer controls, can only say over a pipe what this one asked for.
//!
//!     referee: <release>, one for each test; a release names the test to run and its two tokens, passed and failed
//!     child:   value<canonical text>, for each value that the test has to tell, then <token>
//!
//! A release is 32 digits: the number of a test (12), and the tokens (10 each). Numbers that were drawn for decoys run
//! these, which fail; any other number runs the next test. Decoys come between tests at random, and only this process
//! knows where. A word that was not due is a forged report, and ends the child. The values that tests expect came with the
//! secret: a test that passes has told each of them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{stdin, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::FromRawFd;

use crate::value::{is_expected, MAX_TEXT};

pub const NUMBER: usize = 12;
pub const PASSED: usize = NUMBER + 10;
const RELEASE: usize = PASSED + 10;
pub const REPORT: i32 = 3;
const SIGKILL: i32 = 9;
/// What a line with a value starts with.
pub const VALUE: &str = "value";
/// Bytes of a value's canonical text that a report may show.
pub const MAX_SHOWN: usize = 120;
/// Bytes of a line of the child's that are read.
const MAX_LINE: u64 = MAX_TEXT as u64 + 256;

unsafe extern "C" {
    fn kill(process: i32, signal: i32) -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

enum Turn {
    Test(usize),
    Decoy(usize),
}

/// How a run ends.
enum End {
    Done,
    /// The child ended by itself.
    Silent,
    Forged,
}

pub struct Child {
    pub pid: i32,
    pub told: PipeWriter,
    pub said: BufReader<PipeReader>,
}

/// `names`: of the tests, in their order. `decoys`: their numbers. `source`: of random bytes. Ends this process as the child ended.
pub fn referee(mut child: Child, names: &[&str], decoys: &[String], source: &mut File) -> ! {
    let mut given = String::new();
    stdin().read_to_string(&mut given).expect("the secret is text");
    let mut lines = given.lines();
    let mut head = lines.next().unwrap_or("").split(' ');
    let (secret, shows) = (head.next().unwrap_or("").to_owned(), head.next() == Some("show"));
    let mut expected: HashMap<&str, Vec<&str>> = HashMap::new();
    for (name, text) in lines.filter_map(|line| line.split_once(' ')) {
        expected.entry(name).or_default().push(text);
    }
    // SAFETY: the descriptor is given to this process for this, and nothing else in it has it yet.
    let report = Report { secret, shows, to: unsafe { File::from_raw_fd(REPORT) } };
    for (number, name) in names.iter().enumerate() {
        report.sign(&format!("name {number} {name}"));
    }
    report.sign(&format!("plan {}", names.len()));
    report.sign("start");
    let tests: Vec<&[&str]> = names.iter().map(|&name| expected.get(name).map_or(&[][..], Vec::as_slice)).collect();
    let end = judged(&mut child, &report, &tests, decoys, source);
    match end {
        End::Done => report.sign("done"),
        End::Forged => report.sign("forged"),
        End::Silent => {}
    }
    let mut status = 0;
    // SAFETY: plain system calls; the child is this process's own and was not waited for.
    unsafe {
        if !matches!(end, End::Silent) {
            kill(child.pid, SIGKILL);
        }
        waitpid(child.pid, &mut status, 0);
    }
    std::process::exit(match (end, status & 0x7f) {
        (End::Silent, 0) => status >> 8 & 0xff,
        (End::Silent, signal) => 128 + signal,
        _ => 0,
    })
}

/// `tests`: the values that each of them expects.
fn judged(child: &mut Child, report: &Report, tests: &[&[&str]], decoys: &[String], source: &mut File) -> End {
    let mut turns: Vec<Turn> = (0..tests.len()).map(Turn::Test).collect();
    for decoy in 0..decoys.len() {
        let drawn = u64::from_le_bytes(random(source));
        turns.insert((drawn % (turns.len() as u64 + 1)) as usize, Turn::Decoy(decoy));
    }
    for turn in turns {
        let mut release = hex(&random::<{ RELEASE / 2 }>(source));
        if let Turn::Decoy(number) = turn {
            release.replace_range(..NUMBER, &decoys[number]);
        }
        if child.told.write_all(format!("{release}\n").as_bytes()).is_err() {
            return End::Silent;
        }
        let mut expected = if let Turn::Test(number) = turn { tests[number].iter() } else { [].iter() };
        let mut right = true;
        let passed = loop {
            let line = match heard(&mut child.said) {
                Ok(line) => line,
                Err(end) => return end,
            };
            if let Some(value) = line.strip_prefix(VALUE) {
                let Some(wanted) = expected.next() else { return End::Forged };
                let is_right = value.strip_prefix(' ').is_some_and(|text| is_expected(text, wanted));
                right &= is_right;
                if let (false, true, Turn::Test(number)) = (is_right, report.shows && value.len() <= MAX_SHOWN, &turn) {
                    report.sign(&format!("got {number} {}", hex(value.as_bytes())));
                }
            } else if line == release[NUMBER..PASSED] {
                break right && expected.next().is_none();
            } else if line == release[PASSED..] {
                break false;
            } else {
                return End::Forged;
            }
        };
        match turn {
            Turn::Decoy(_) if passed => return End::Forged,
            Turn::Decoy(_) => {}
            Turn::Test(number) => report.sign(&format!("{} {number}", if passed { "ok" } else { "fail" })),
        }
    }
    End::Done
}

fn heard(from: &mut BufReader<PipeReader>) -> Result<String, End> {
    let mut line = Vec::new();
    match from.take(MAX_LINE).read_until(b'\n', &mut line) {
        Ok(_) if line.pop() == Some(b'\n') => String::from_utf8(line).map_err(|_| End::Forged),
        Ok(read) if read as u64 == MAX_LINE => Err(End::Forged),
        _ => Err(End::Silent),
    }
}

pub struct Report {
    pub secret: String,
    /// Values that are not the expected ones: all tests of this run are public.
    pub shows: bool,
    pub to: File,
}

impl Report {
    /// At once: what was reported counts, however this process ends.
    pub fn sign(&self, text: &str) {
        let line = format!("{} {text}\n", self.secret);
        (&self.to).write_all(line.as_bytes()).expect("the report can be written");
    }
}

/// From the kernel: what this process draws, the child cannot know of the memory that they once shared.
pub fn random<const BYTES: usize>(source: &mut File) -> [u8; BYTES] {
    let mut drawn = [0; BYTES];
    source.read_exact(&mut drawn).expect("there are random numbers");
    drawn
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
