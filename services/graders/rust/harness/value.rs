//! Values as canonical text, in the words that `expected_values.py` documents. No code of an answer's makes it: what is not
//! of the standard library is `?`, which equals nothing.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, LinkedList, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of a text, but for the word in which this is passed.
///
/// At least nine times that of `data_expressions.py`: a float is one of 17 digits here and may be `.1` there.
pub const MAX_TEXT: usize = 1 << 20;

pub trait Told {
    fn tell(&self, to: &mut String);
}

impl<T: ?Sized> Told for T {
    default fn tell(&self, to: &mut String) {
        to.push_str(" ?");
    }
}

/// None of a text that would be too long.
pub fn text(value: &(impl Told + ?Sized)) -> Option<String> {
    let mut text = String::new();
    value.tell(&mut text);
    (text.len() <= MAX_TEXT).then_some(text)
}

/// `text` is the canonical text of what is expected. Floats are expected as they were written, of either length.
pub fn is_expected(text: &str, expected: &str) -> bool {
    let (mut words, mut wanted) = (text.split(' '), expected.split(' '));
    loop {
        match (words.next(), wanted.next()) {
            (None, None) => return true,
            (Some(word), Some(want)) if word == want || is_float(word, want) => {}
            _ => return false,
        }
    }
}

fn is_float(word: &str, want: &str) -> bool {
    let (Some(want), Some((length, bits))) = (want.strip_prefix('.'), word.split_at_checked(1)) else { return false };
    match length {
        "f" => u32::from_str_radix(bits, 16).is_ok_and(|bits| want.parse() == Ok(f32::from_bits(bits))),
        "d" => u64::from_str_radix(bits, 16).is_ok_and(|bits| want.parse() == Ok(f64::from_bits(bits))),
        _ => false,
    }
}

macro_rules! words {
    ($($type:ty: |$value:ident| $($argument:expr),+;)+) => {
        $(impl Told for $type {
            fn tell(&self, to: &mut String) {
                let $value = self;
                let _ = write!(to, $($argument),+);
            }
        })+
    };
}

words! {
    i8: |n| " i{n}"; i16: |n| " i{n}"; i32: |n| " i{n}"; i64: |n| " i{n}"; i128: |n| " i{n}"; isize: |n| " i{n}";
    u8: |n| " i{n}"; u16: |n| " i{n}"; u32: |n| " i{n}"; u64: |n| " i{n}"; u128: |n| " i{n}"; usize: |n| " i{n}";
    f32: |f| " f{:x}", f.to_bits();
    f64: |f| " d{:x}", f.to_bits();
    bool: |b| " b{}", u8::from(*b);
    char: |c| " c{}", u32::from(*c);
    Ordering: |o| " o{}", *o as i8;
}

impl Told for str {
    fn tell(&self, to: &mut String) {
        to.push_str(" \"");
        for byte in self.bytes().take(MAX_TEXT) {
            to.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
        }
    }
}

macro_rules! strings {
    ($($type:ty: $as_str:ident),+) => {
        $(impl Told for $type {
            fn tell(&self, to: &mut String) {
                self.$as_str().tell(to);
            }
        })+
    };
}

strings!(String: as_str, OsString: as_os_str, PathBuf: as_path, Path: as_os_str);

impl Told for OsStr {
    fn tell(&self, to: &mut String) {
        self.to_string_lossy().tell(to);
    }
}

macro_rules! transparent {
    ($($type:ty),+) => {
        $(impl<T: ?Sized> Told for $type {
            fn tell(&self, to: &mut String) {
                (**self).tell(to);
            }
        })+
    };
}

transparent!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

impl Told for Cow<'_, str> {
    fn tell(&self, to: &mut String) {
        (**self).tell(to);
    }
}

impl<T: Clone> Told for Cow<'_, [T]> {
    fn tell(&self, to: &mut String) {
        (**self).tell(to);
    }
}

impl<T> Told for Option<T> {
    fn tell(&self, to: &mut String) {
        match self {
            None => to.push_str(" N"),
            Some(value) => {
                to.push_str(" S");
                value.tell(to);
            }
        }
    }
}

impl<T, E> Told for Result<T, E> {
    fn tell(&self, to: &mut String) {
        match self {
            Ok(value) => {
                to.push_str(" K");
                value.tell(to);
            }
            Err(value) => {
                to.push_str(" E");
                value.tell(to);
            }
        }
    }
}

fn sequence<T>(length: usize, parts: impl Iterator<Item = T>, to: &mut String) {
    let _ = write!(to, " [{length}");
    for part in parts {
        part.tell(to);
        if to.len() > MAX_TEXT {
            break;
        }
    }
}

impl<T> Told for [T] {
    fn tell(&self, to: &mut String) {
        sequence(self.len(), self.iter(), to);
    }
}

impl<T, const LENGTH: usize> Told for [T; LENGTH] {
    fn tell(&self, to: &mut String) {
        self[..].tell(to);
    }
}

impl<T> Told for Vec<T> {
    fn tell(&self, to: &mut String) {
        self[..].tell(to);
    }
}

impl<T> Told for VecDeque<T> {
    fn tell(&self, to: &mut String) {
        sequence(self.len(), self.iter(), to);
    }
}

impl<T> Told for LinkedList<T> {
    fn tell(&self, to: &mut String) {
        sequence(self.len(), self.iter(), to);
    }
}

/// Sorted, as the order of a set says nothing.
fn collection<T>(parts: impl ExactSizeIterator<Item = T>, to: &mut String) {
    let _ = write!(to, " {{{}", parts.len());
    let (mut texts, mut length) = (vec![], to.len());
    for part in parts {
        let mut text = String::new();
        part.tell(&mut text);
        length += text.len();
        texts.push(text);
        if length > MAX_TEXT {
            break;
        }
    }
    texts.sort_unstable();
    to.extend(texts);
}

impl<T, S> Told for HashSet<T, S> {
    fn tell(&self, to: &mut String) {
        collection(self.iter(), to);
    }
}

impl<T> Told for BTreeSet<T> {
    fn tell(&self, to: &mut String) {
        collection(self.iter(), to);
    }
}

impl<K, V, S> Told for HashMap<K, V, S> {
    fn tell(&self, to: &mut String) {
        collection(self.iter(), to);
    }
}

impl<K, V> Told for BTreeMap<K, V> {
    fn tell(&self, to: &mut String) {
        collection(self.iter(), to);
    }
}

macro_rules! tuples {
    ($($length:literal: $($name:ident)*;)+) => {
        $(impl<$($name),*> Told for ($($name,)*) {
            #[allow(non_snake_case)]
            fn tell(&self, to: &mut String) {
                let ($($name,)*) = self;
                to.push_str(concat!(" (", $length));
                $($name.tell(to);)*
            }
        })+
    };
}

tuples! {
    0: ; 1: A; 2: A B; 3: A B C; 4: A B C D; 5: A B C D E; 6: A B C D E F; 7: A B C D E F G; 8: A B C D E F G H;
    9: A B C D E F G H I; 10: A B C D E F G H I J; 11: A B C D E F G H I J K; 12: A B C D E F G H I J K L;
}
