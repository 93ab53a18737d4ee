//! Decodes a list that a peer sent, and refuses it while it is decoded if its length exceeds a
//! limit.
//!
//! A check after decoding would be too late: a key of one byte takes two bytes in a message and 57
//! in memory.
//!
//! Invariant: no memory is allocated for a list whose stated length exceeds the limit, and no
//! element beyond the limit is stored.

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use std::{fmt, marker::PhantomData};

/// A list of at most `MOST` elements.
pub(crate) fn at_most<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(AtMost::<T, MOST>(PhantomData))
}

struct AtMost<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for AtMost<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let said = list.size_hint().unwrap_or(0);
        if said > MOST {
            return Err(A::Error::invalid_length(said, &self));
        }
        let mut elements = Vec::with_capacity(said);
        while let Some(element) = list.next_element()? {
            if elements.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static MADE: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(Debug)]
    struct Counted;

    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            MADE.set(MADE.get() + 1);
            u8::deserialize(deserializer).map(|_| Self)
        }
    }

    #[derive(Debug, Deserialize)]
    struct Few(#[serde(deserialize_with = "at_most::<_, _, 3>")] Vec<Counted>);

    #[test]
    fn no_element_is_made_of_a_list_that_is_too_long() {
        let decode = |list: &[u8]| postcard::from_bytes::<Few>(&postcard::to_stdvec(list).unwrap());
        assert_eq!(decode(&[1, 2, 3]).unwrap().0.len(), 3);
        assert_eq!(MADE.replace(0), 3);
        for length in [4, 5000] {
            assert!(decode(&vec![0; length]).is_err());
            assert_eq!(MADE.get(), 0, "{length}");
        }
    }
}
