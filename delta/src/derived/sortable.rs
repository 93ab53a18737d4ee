//! Encodes values as bytes that sort like the values.
//!
//! | first byte | value | then |
//! |---|---|---|
//! | 0 | none | |
//! | 1 | an integer | 8 bytes, big-endian, the sign bit inverted |
//! | 2 | a double | 8 bytes, big-endian: all bits inverted if it is negative, else the sign bit |
//! | 3 | text | its bytes, each zero as 0 255; then 0 0 |
//!
//! Invariants
//! - The bytes of values of one column sort like the values. Missing values are first; doubles are
//!   in the order of `f64::total_cmp`, in which -0 is before 0 and NaNs are at either end; text is
//!   in the order of its UTF-8 bytes.
//! - The bytes of a value are never a prefix of those of another value. So the bytes that follow a
//!   value in a key do not change the order.
//! - Each value has one encoding: decoding and encoding it again gives the same bytes.

use crate::row::Datum;

/// The sign bit.
const SIGN: u64 = 1 << 63;

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const FLOAT: u8 = 2;
const TEXT: u8 = 3;
/// Follows a zero byte of a text, to distinguish it from the end.
const ZERO: u8 = 255;
/// Follows the zero byte that ends a text.
const END: u8 = 0;

/// Above the first byte of every value, and above every byte that follows a value in keys.
pub(super) const ABOVE_ALL: u8 = 255;

/// Appends a value's bytes.
pub(super) fn append(value: &Datum, bytes: &mut Vec<u8>) {
    match value {
        Datum::Null => bytes.push(NULL),
        Datum::Integer(value) => {
            bytes.push(INTEGER);
            bytes.extend_from_slice(&(value.cast_unsigned() ^ SIGN).to_be_bytes());
        }
        Datum::Float(value) => {
            let bits = value.to_bits();
            let sortable = if bits & SIGN == 0 { bits | SIGN } else { !bits };
            bytes.push(FLOAT);
            bytes.extend_from_slice(&sortable.to_be_bytes());
        }
        Datum::Text(text) => {
            bytes.push(TEXT);
            for byte in text.bytes() {
                bytes.push(byte);
                if byte == 0 {
                    bytes.push(ZERO);
                }
            }
            bytes.extend_from_slice(&[0, END]);
        }
    }
}

/// Takes a value's bytes from the beginning; `None` if there are none.
pub(super) fn take(bytes: &mut &[u8]) -> Option<Datum> {
    let (kind, rest) = bytes.split_first()?;
    let (value, rest) = match *kind {
        NULL => (Datum::Null, rest),
        INTEGER => {
            let (word, rest) = rest.split_first_chunk()?;
            (Datum::Integer((u64::from_be_bytes(*word) ^ SIGN).cast_signed()), rest)
        }
        FLOAT => {
            let (word, rest) = rest.split_first_chunk()?;
            let sortable = u64::from_be_bytes(*word);
            let bits = if sortable & SIGN == 0 { !sortable } else { sortable & !SIGN };
            (Datum::Float(f64::from_bits(bits)), rest)
        }
        TEXT => text(rest)?,
        _ => return None,
    };
    *bytes = rest;
    Some(value)
}

fn text(mut bytes: &[u8]) -> Option<(Datum, &[u8])> {
    let mut text = Vec::new();
    loop {
        match bytes {
            [0, END, rest @ ..] => return Some((Datum::Text(String::from_utf8(text).ok()?), rest)),
            [0, ZERO, rest @ ..] => {
                text.push(0);
                bytes = rest;
            }
            [byte, rest @ ..] if *byte != 0 => {
                text.push(*byte);
                bytes = rest;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn bytes(value: &Datum) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(value, &mut bytes);
        bytes
    }

    /// The order that is promised.
    fn order(a: &Datum, b: &Datum) -> Ordering {
        match (a, b) {
            (Datum::Null, Datum::Null) => Ordering::Equal,
            (Datum::Null, _) => Ordering::Less,
            (_, Datum::Null) => Ordering::Greater,
            (Datum::Integer(a), Datum::Integer(b)) => a.cmp(b),
            (Datum::Float(a), Datum::Float(b)) => a.total_cmp(b),
            (Datum::Text(a), Datum::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            other => panic!("no column has {other:?}"),
        }
    }

    fn same(a: &Datum, b: &Datum) -> bool {
        match (a, b) {
            (Datum::Float(a), Datum::Float(b)) => a.to_bits() == b.to_bits(),
            _ => a == b,
        }
    }

    /// Two values of one column.
    fn two() -> impl Strategy<Value = (Datum, Datum)> {
        let nulls = |of: BoxedStrategy<Datum>| prop_oneof![1 => Just(Datum::Null), 9 => of].boxed();
        let numbers = prop_oneof![any::<i64>(), -3_i64..3, Just(i64::MIN), Just(i64::MAX)];
        let numbers = nulls(numbers.prop_map(Datum::Integer).boxed());
        // Of any bits: both zeros, infinities, what is not a number, and numbers below the normal
        // ones.
        let special = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
        let floats =
            prop_oneof![any::<u64>().prop_map(f64::from_bits), prop::sample::select(special.to_vec())];
        let floats = nulls(floats.prop_map(Datum::Float).boxed());
        let texts = prop_oneof![
            prop::collection::vec(
                prop::sample::select(&['\0', '\u{1}', 'a', '\u{ff}', '\u{10ffff}'][..]),
                0..5
            )
            .prop_map(String::from_iter),
            ".{0,8}",
        ];
        let texts = nulls(texts.prop_map(Datum::Text).boxed());
        prop_oneof![(numbers.clone(), numbers), (floats.clone(), floats), (texts.clone(), texts)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn values_are_in_the_order_of_their_bytes_whatever_follows((a, b) in two(), behind in any::<[u8; 4]>()) {
            let (of_a, of_b) = (bytes(&a), bytes(&b));
            prop_assert_eq!(of_a.cmp(&of_b), order(&a, &b), "{:?} {:?}", a, b);
            let (long_a, long_b) = ([&of_a[..], &behind[..2]].concat(), [&of_b[..], &behind[2..]].concat());
            if of_a != of_b {
                prop_assert_eq!(long_a.cmp(&long_b), order(&a, &b), "{:?} {:?}", a, b);
            }
        }

        #[test]
        fn a_value_survives_its_bytes_and_leaves_what_follows((value, _) in two(), behind in any::<[u8; 3]>()) {
            let all = [&bytes(&value)[..], &behind].concat();
            let mut rest = &all[..];
            let found = take(&mut rest);
            prop_assert!(found.as_ref().is_some_and(|found| same(found, &value)), "{found:?} of {value:?}");
            prop_assert_eq!(rest, &behind);
        }

        #[test]
        fn any_bytes_are_a_value_in_its_one_form_or_none(
            kind in 0_u8..5, words in prop::collection::vec(prop::sample::select(&[0_u8, 1, 97, 195, 255][..]), 0..12),
        ) {
            let all = [&[kind][..], &words].concat();
            let mut rest = &all[..];
            if let Some(value) = take(&mut rest) {
                prop_assert_eq!([&bytes(&value)[..], rest].concat(), all);
            }
        }
    }

    #[test]
    fn nothing_is_before_everything_and_minus_zero_before_zero() {
        let ascending = [
            Datum::Float(-f64::NAN),
            Datum::Float(f64::NEG_INFINITY),
            Datum::Float(-1.0),
            Datum::Float(-0.0),
            Datum::Float(0.0),
            Datum::Float(1.0),
            Datum::Float(f64::INFINITY),
            Datum::Float(f64::NAN),
        ];
        let ascending: Vec<Vec<u8>> = ascending.iter().map(bytes).collect();
        assert!(ascending.is_sorted_by(|a, b| a < b), "{ascending:?}");
        for value in [Datum::Integer(i64::MIN), Datum::Float(-f64::NAN), Datum::Text(String::new())] {
            assert!(bytes(&Datum::Null) < bytes(&value), "{value:?}");
            assert!(bytes(&value) < vec![ABOVE_ALL]);
        }
    }
}
