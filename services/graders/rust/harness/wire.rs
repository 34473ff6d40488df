//! Values on their way between the process of the tests and that of the answer: arguments one way, results the other.
//!
//! `Put` writes a value, `Take` reads one. Both have a parameter `M`, a type of the crate that implements them for types of
//! its own or of an answer's. What the answer's process sends may be anything: `take` returns None for what is no value.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::fmt::{Alignment, Formatter, FormattingOptions, Sign};
use std::hash::{BuildHasher, Hash};
use std::num::{IntErrorKind, ParseIntError};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a message.
#[derive(Default)]
pub struct Writer {
    pub bytes: Vec<u8>,
    /// Where in `bytes` handles stand.
    pub handles: Vec<usize>,
}

/// Not inlined, as little as possible is compiled with each answer.
impl Writer {
    #[inline(never)]
    pub fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    #[inline(never)]
    pub fn put_handle(&mut self, handle: u64) {
        self.handles.push(self.bytes.len());
        self.bytes.extend(handle.to_le_bytes());
    }

    #[inline(never)]
    fn put_text(&mut self, text: &str) {
        self.put_length(text.len());
        self.bytes.extend(text.as_bytes());
    }

    #[inline(never)]
    fn put_length(&mut self, length: usize) {
        self.bytes.extend((length as u64).to_le_bytes());
    }

    #[inline(never)]
    fn put_flag(&mut self, flag: bool) {
        self.bytes.push(u8::from(flag));
    }
}

/// A message that is read from its start.
pub struct Reader {
    bytes: Vec<u8>,
    at: usize,
    /// Handles that were read, in their order.
    pub handles: Vec<u64>,
    /// A float was read that is infinite or no number.
    pub is_unbounded: bool,
}

impl Reader {
    pub fn new(bytes: Vec<u8>) -> Self {
        Reader { bytes, at: 0, handles: vec![], is_unbounded: false }
    }

    /// The message is a handle and nothing else.
    pub fn is_handle(&self) -> bool {
        self.handles.len() == 1 && self.bytes.len() == 8
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[inline(never)]
    fn take_text(&mut self) -> Option<String> {
        let length = self.take_length()?;
        Some(std::str::from_utf8(self.take_bytes(length)?).ok()?.to_owned())
    }

    #[inline(never)]
    fn take_flag(&mut self) -> Option<bool> {
        let [byte] = self.take_array()?;
        (byte < 2).then_some(byte == 1)
    }

    fn take_bytes(&mut self, length: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn take_array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        self.take_bytes(LENGTH)?.try_into().ok()
    }

    #[inline(never)]
    pub fn take_handle(&mut self) -> Option<u64> {
        let handle = u64::from_le_bytes(self.take_array()?);
        self.handles.push(handle);
        Some(handle)
    }

    /// The number of parts that follow. Every part has a byte at least, so that no length is longer than its message.
    #[inline(never)]
    fn take_length(&mut self) -> Option<usize> {
        let length = usize::try_from(u64::from_le_bytes(self.take_array()?)).ok()?;
        (length <= self.bytes.len() - self.at).then_some(length)
    }
}

pub trait Put<M> {
    fn put(&self, to: &mut Writer);

    fn put_all(parts: &[Self], to: &mut Writer)
    where
        Self: Sized,
    {
        for part in parts {
            part.put(to);
        }
    }
}

/// Values that can be put by a reference to them: all but handles of the answer's process, which are moved.
pub trait Lend<M>: Put<M> {}

pub trait Take<M>: Sized {
    fn take(from: &mut Reader) -> Option<Self>;

    fn take_all(from: &mut Reader, length: usize) -> Option<Vec<Self>> {
        let mut parts = vec![];
        while parts.len() < length {
            parts.push(Self::take(from)?);
        }
        Some(parts)
    }

    /// A reference to the value that comes next.
    fn lend<'a>(from: &mut Reader) -> Option<&'a mut Self>
    where
        Self: 'a,
    {
        Some(crate::remote::keep(Self::take(from)?))
    }
}

/// What a function changed through a `&mut` parameter, sent behind its result.
pub trait PutBack<M> {
    fn put_back(&self, to: &mut Writer);
    fn take_back(&mut self, from: &mut Reader) -> Option<()>;
}

impl<M, T: Put<M> + Take<M>> PutBack<M> for T {
    fn put_back(&self, to: &mut Writer) {
        self.put(to);
    }

    fn take_back(&mut self, from: &mut Reader) -> Option<()> {
        *self = T::take(from)?;
        Some(())
    }
}

impl<M, T: Put<M> + Take<M>> PutBack<M> for [T] {
    fn put_back(&self, to: &mut Writer) {
        self.iter().for_each(|part| part.put(to));
    }

    fn take_back(&mut self, from: &mut Reader) -> Option<()> {
        for part in self {
            *part = T::take(from)?;
        }
        Some(())
    }
}

/// What needs no type parameter is a function of its own, which is compiled here and not with each answer, and optimised.
macro_rules! fixed {
    ($($type:ty),+) => {
        $(const _: () = {
            #[inline(never)]
            fn put_one(value: $type, to: &mut Writer) {
                to.bytes.extend(value.to_le_bytes());
            }
            #[inline(never)]
            fn put_all(values: &[$type], to: &mut Writer) {
                to.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            #[inline(never)]
            fn take_one(from: &mut Reader) -> Option<$type> {
                Some(<$type>::from_le_bytes(from.take_array()?))
            }
            #[inline(never)]
            fn take_all(from: &mut Reader, length: usize) -> Option<Vec<$type>> {
                let (values, _) = from.take_bytes(length.checked_mul(size_of::<$type>())?)?.as_chunks();
                Some(values.iter().map(|bytes| <$type>::from_le_bytes(*bytes)).collect())
            }
            impl<M> Put<M> for $type {
                fn put(&self, to: &mut Writer) {
                    put_one(*self, to);
                }

                fn put_all(parts: &[Self], to: &mut Writer) {
                    put_all(parts, to);
                }
            }
            impl<M> Lend<M> for $type {}
            impl<M> Take<M> for $type {
                fn take(from: &mut Reader) -> Option<Self> {
                    take_one(from)
                }

                fn take_all(from: &mut Reader, length: usize) -> Option<Vec<Self>> {
                    take_all(from, length)
                }
            }
        };)+
    };
}

fixed!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

macro_rules! by_way_of {
    ($($type:ty as $other:ty: |$value:ident| $out:expr, |$from:ident, $taken:ident| $in:expr;)+) => {
        $(const _: () = {
            #[inline(never)]
            fn put_one($value: &$type, to: &mut Writer) {
                let other: $other = $out;
                Put::<()>::put(&other, to);
            }
            #[inline(never)]
            fn take_one($from: &mut Reader) -> Option<$type> {
                let $taken = <$other as Take<()>>::take($from)?;
                $in
            }
            impl<M> Put<M> for $type {
                fn put(&self, to: &mut Writer) {
                    put_one(self, to);
                }
            }
            impl<M> Lend<M> for $type {}
            impl<M> Take<M> for $type {
                fn take(from: &mut Reader) -> Option<Self> {
                    take_one(from)
                }
            }
        };)+
    };
}

by_way_of! {
    f32 as u32: |f| f.to_bits(), |from, bits| {
        let float = f32::from_bits(bits);
        from.is_unbounded |= !float.is_finite();
        Some(float)
    };
    f64 as u64: |f| f.to_bits(), |from, bits| {
        let float = f64::from_bits(bits);
        from.is_unbounded |= !float.is_finite();
        Some(float)
    };
    bool as u8: |b| u8::from(*b), |from, byte| (byte < 2).then_some(byte == 1);
    () as u8: |_unit| 0, |from, byte| (byte == 0).then_some(());
    char as u32: |c| u32::from(*c), |from, code| char::from_u32(code);
    Ordering as i8: |o| *o as i8, |from, sign| match sign {
        -1 => Some(Ordering::Less),
        0 => Some(Ordering::Equal),
        1 => Some(Ordering::Greater),
        _ => None,
    };
    Duration as (u64, u32): |d| (d.as_secs(), d.subsec_nanos()), |from, parts| {
        (parts.1 < 1_000_000_000).then(|| Duration::new(parts.0, parts.1))
    };
    ParseIntError as u8: |e| match e.kind() {
        IntErrorKind::Empty => 0,
        IntErrorKind::InvalidDigit => 1,
        IntErrorKind::PosOverflow => 2,
        _ => 3,
    }, |from, kind| ["", "x", "128", "-129"].get(usize::from(kind))?.parse::<i8>().err();
}

impl<M> Put<M> for str {
    fn put(&self, to: &mut Writer) {
        to.put_text(self);
    }
}

impl<M> Lend<M> for str {}

impl<M> Put<M> for String {
    fn put(&self, to: &mut Writer) {
        to.put_text(self);
    }
}

impl<M> Lend<M> for String {}

impl<M> Take<M> for String {
    fn take(from: &mut Reader) -> Option<Self> {
        from.take_text()
    }
}

impl<M, T: Put<M>> Put<M> for [T] {
    fn put(&self, to: &mut Writer) {
        to.put_length(self.len());
        T::put_all(self, to);
    }
}

impl<M, T: Lend<M>> Lend<M> for [T] {}

impl<M, T: Put<M>, const LENGTH: usize> Put<M> for [T; LENGTH] {
    fn put(&self, to: &mut Writer) {
        self[..].put(to);
    }
}

impl<M, T: Lend<M>, const LENGTH: usize> Lend<M> for [T; LENGTH] {}

impl<M, T: Put<M>> Put<M> for Vec<T> {
    fn put(&self, to: &mut Writer) {
        self[..].put(to);
    }
}

impl<M, T: Lend<M>> Lend<M> for Vec<T> {}

impl<M, T: Take<M>> Take<M> for Vec<T> {
    fn take(from: &mut Reader) -> Option<Self> {
        let length = from.take_length()?;
        T::take_all(from, length)
    }
}

impl<M, T: Take<M>, const LENGTH: usize> Take<M> for [T; LENGTH] {
    fn take(from: &mut Reader) -> Option<Self> {
        Vec::take(from)?.try_into().ok()
    }
}

macro_rules! collections {
    ($($name:ident<$($part:ident: $bound:path),+ $(; $state:ident)?> of $item:ty;)+) => {
        $(impl<M, $($part: Put<M>),+ $(, $state)?> Put<M> for $name<$($part),+ $(, $state)?> {
            fn put(&self, to: &mut Writer) {
                to.put_length(self.len());
                self.iter().for_each(|part| PutPart::<M>::put_part(&part, to));
            }
        }
        impl<M, $($part: Lend<M>),+ $(, $state)?> Lend<M> for $name<$($part),+ $(, $state)?> {}
        impl<M, $($part: Take<M> + $bound),+ $(, $state: BuildHasher + Default)?> Take<M> for $name<$($part),+ $(, $state)?> {
            fn take(from: &mut Reader) -> Option<Self> {
                let length = from.take_length()?;
                (0..length).map(|_| <$item as Take<M>>::take(from)).collect()
            }
        })+
    };
}

/// A part of a collection as its iterator gives it.
trait PutPart<M> {
    fn put_part(&self, to: &mut Writer);
}

impl<M, T: Put<M>> PutPart<M> for &T {
    fn put_part(&self, to: &mut Writer) {
        (**self).put(to);
    }
}

impl<M, K: Put<M>, V: Put<M>> PutPart<M> for (&K, &V) {
    fn put_part(&self, to: &mut Writer) {
        self.0.put(to);
        self.1.put(to);
    }
}

trait Any {}
impl<T> Any for T {}
trait Key: Hash + Eq {}
impl<T: Hash + Eq> Key for T {}

collections! {
    VecDeque<T: Any> of T;
    LinkedList<T: Any> of T;
    BinaryHeap<T: Ord> of T;
    BTreeSet<T: Ord> of T;
    HashSet<T: Key; S> of T;
    BTreeMap<K: Ord, V: Any> of (K, V);
    HashMap<K: Key, V: Any; S> of (K, V);
}

macro_rules! pointers {
    ($($type:ident),+) => {
        $(impl<M, T: Put<M>> Put<M> for $type<T> {
            fn put(&self, to: &mut Writer) {
                (**self).put(to);
            }
        }
        impl<M, T: Lend<M>> Lend<M> for $type<T> {}
        impl<M, T: Take<M>> Take<M> for $type<T> {
            fn take(from: &mut Reader) -> Option<Self> {
                Some($type::new(T::take(from)?))
            }
        })+
    };
}

pointers!(Box, Rc, Arc);

impl<M, T: Lend<M> + ?Sized> Put<M> for &T {
    fn put(&self, to: &mut Writer) {
        (**self).put(to);
    }
}

impl<M, T: Lend<M> + ?Sized> Lend<M> for &T {}

impl<'a, M, T: Take<M> + 'a> Take<M> for &'a T {
    fn take(from: &mut Reader) -> Option<Self> {
        T::lend(from).map(|lent| &*lent)
    }
}

impl<'a, M, T: Take<M> + 'a> Take<M> for &'a mut T {
    fn take(from: &mut Reader) -> Option<Self> {
        T::lend(from)
    }
}

impl<'a, M> Take<M> for &'a str {
    fn take(from: &mut Reader) -> Option<Self> {
        <String as Take<M>>::lend(from).map(|lent| lent.as_str())
    }
}

impl<'a, M, T: Take<M> + 'a> Take<M> for &'a [T] {
    fn take(from: &mut Reader) -> Option<Self> {
        <Vec<T> as Take<M>>::lend(from).map(|lent| lent.as_slice())
    }
}

impl<'a, M, T: Take<M> + 'a> Take<M> for &'a mut [T] {
    fn take(from: &mut Reader) -> Option<Self> {
        <Vec<T> as Take<M>>::lend(from).map(Vec::as_mut_slice)
    }
}

impl<M, T: Lend<M> + ToOwned + ?Sized> Put<M> for Cow<'_, T> {
    fn put(&self, to: &mut Writer) {
        to.put_flag(matches!(self, Cow::Borrowed(_)));
        (**self).put(to);
    }
}

impl<M, T: Lend<M> + ToOwned + ?Sized> Lend<M> for Cow<'_, T> {}

impl<'a, M, T: ToOwned<Owned: Take<M> + 'a> + ?Sized> Take<M> for Cow<'a, T> {
    fn take(from: &mut Reader) -> Option<Self> {
        let is_borrowed = from.take_flag()?;
        let value = <T::Owned as Take<M>>::take(from)?;
        if !is_borrowed {
            return Some(Cow::Owned(value));
        }
        let kept: &'a T::Owned = crate::remote::keep(value);
        Some(Cow::Borrowed(kept.borrow()))
    }
}

impl<M, T: Put<M>> Put<M> for Option<T> {
    fn put(&self, to: &mut Writer) {
        to.put_flag(self.is_some());
        if let Some(value) = self {
            value.put(to);
        }
    }
}

impl<M, T: Lend<M>> Lend<M> for Option<T> {}

impl<M, T: Take<M>> Take<M> for Option<T> {
    fn take(from: &mut Reader) -> Option<Self> {
        if from.take_flag()? { Some(Some(T::take(from)?)) } else { Some(None) }
    }
}

impl<M, T: Put<M>, E: Put<M>> Put<M> for Result<T, E> {
    fn put(&self, to: &mut Writer) {
        to.put_flag(self.is_ok());
        match self {
            Ok(value) => value.put(to),
            Err(error) => error.put(to),
        }
    }
}

impl<M, T: Lend<M>, E: Lend<M>> Lend<M> for Result<T, E> {}

impl<M, T: Take<M>, E: Take<M>> Take<M> for Result<T, E> {
    fn take(from: &mut Reader) -> Option<Self> {
        Some(if from.take_flag()? { Ok(T::take(from)?) } else { Err(E::take(from)?) })
    }
}

impl<M, T: Put<M>> Put<M> for Range<T> {
    fn put(&self, to: &mut Writer) {
        self.start.put(to);
        self.end.put(to);
    }
}

impl<M, T: Lend<M>> Lend<M> for Range<T> {}

impl<M, T: Take<M>> Take<M> for Range<T> {
    fn take(from: &mut Reader) -> Option<Self> {
        Some(T::take(from)?..T::take(from)?)
    }
}

impl<M, T: Put<M>> Put<M> for RangeInclusive<T> {
    fn put(&self, to: &mut Writer) {
        self.start().put(to);
        self.end().put(to);
    }
}

impl<M, T: Lend<M>> Lend<M> for RangeInclusive<T> {}

impl<M, T: Take<M>> Take<M> for RangeInclusive<T> {
    fn take(from: &mut Reader) -> Option<Self> {
        Some(T::take(from)?..=T::take(from)?)
    }
}

macro_rules! tuples {
    ($($($name:ident)+;)+) => {
        $(impl<M, $($name: Put<M>),+> Put<M> for ($($name,)+) {
            #[allow(non_snake_case)]
            fn put(&self, to: &mut Writer) {
                let ($($name,)+) = self;
                $($name.put(to);)+
            }
        }
        impl<M, $($name: Lend<M>),+> Lend<M> for ($($name,)+) {}
        impl<M, $($name: Take<M>),+> Take<M> for ($($name,)+) {
            fn take(from: &mut Reader) -> Option<Self> {
                Some(($($name::take(from)?,)+))
            }
        })+
    };
}

tuples! {
    A; A B; A B C; A B C D; A B C D E; A B C D E F; A B C D E F G; A B C D E F G H;
    A B C D E F G H I; A B C D E F G H I J; A B C D E F G H I J K; A B C D E F G H I J K L;
}

/// How a value is formatted: fill, alignment, width, precision; `+`, `0` and `#`.
pub type Format = (char, u8, Option<u16>, Option<u16>, (bool, bool, bool));

#[inline(never)]
pub fn read_format(formatter: &Formatter) -> Format {
    let options = formatter.options();
    let alignment = match options.get_align() {
        None => 0,
        Some(Alignment::Left) => 1,
        Some(Alignment::Right) => 2,
        Some(Alignment::Center) => 3,
    };
    let is_signed = options.get_sign() == Some(Sign::Plus);
    let flags = (is_signed, options.get_sign_aware_zero_pad(), options.get_alternate());
    (options.get_fill(), alignment, options.get_width(), options.get_precision(), flags)
}

/// The text that `write` writes in this format.
#[inline(never)]
pub fn render(format: Format, write: &dyn Fn(&mut Formatter) -> std::fmt::Result) -> String {
    let (fill, alignment, width, precision, (is_signed, is_padded, is_alternate)) = format;
    let alignments = [None, Some(Alignment::Left), Some(Alignment::Right), Some(Alignment::Center)];
    let mut options = FormattingOptions::new();
    options.fill(fill).align(alignments[usize::from(alignment)]).width(width).precision(precision);
    options.sign(is_signed.then_some(Sign::Plus)).sign_aware_zero_pad(is_padded).alternate(is_alternate);
    let mut text = String::new();
    write(&mut options.create_formatter(&mut text)).expect("a formatting trait returned an error");
    text
}
