//! Estimates the memory that a decoded request takes, which is more than its encoded bytes. Nodes
//! use the estimate to bound the memory of the requests that they are serving.
//!
//! Invariant: the estimate counts every list, so a request never takes much more memory than
//! estimated.

use super::{Part, Preconditions, Request};
use crate::{
    item::{Key, Value},
    timestamp::Timestamp,
};

/// The overhead of a shared byte string: two reference counts, and what the allocator adds.
const SHARED_BYTES: usize = 32;

impl Request {
    /// The approximate memory of the request with everything that it holds, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let timestamps = |timestamps: &Vec<Timestamp>| timestamps.capacity() * size_of::<Timestamp>();
        let keys =
            |keys: &Vec<Key>| keys.capacity() * size_of::<Key>() + keys.iter().map(shared).sum::<usize>();
        let held = match self {
            Self::Get { keys: wanted, .. } | Self::Timestamps { keys: wanted, .. } => keys(wanted),
            Self::Among { keys: wanted, timestamps: among, .. } => keys(wanted) + timestamps(among),
            Self::Scan { range, .. } => range.prefix.capacity() + range.after.as_ref().map_or(0, shared),
            Self::Prepare { part, settled, preconditions } => {
                part.memory_bytes() + timestamps(settled) + preconditions.memory_bytes()
            }
            Self::Put { part, preconditions } => part.memory_bytes() + preconditions.memory_bytes(),
            Self::Settled { timestamps: ended } | Self::Ended { timestamps: ended } => timestamps(ended),
            Self::Lock { wanted, .. } => {
                size_of_val(wanted.as_slice()) + wanted.iter().map(|(key, _)| shared(key)).sum::<usize>()
            }
            Self::Lease { .. }
            | Self::Advance { .. }
            | Self::Close { .. }
            | Self::Mark
            | Self::Commit { .. }
            | Self::Abort { .. }
            | Self::Inquire { .. }
            | Self::Unlock { .. } => 0,
        };
        size_of::<Self>() + held
    }
}

impl Preconditions {
    fn memory_bytes(&self) -> usize {
        self.expected.capacity() * size_of::<(u32, Timestamp)>()
    }
}

impl Part {
    fn memory_bytes(&self) -> usize {
        let items = self.items.iter().map(|(key, value)| shared(key) + SHARED_BYTES + value.len());
        self.participants.capacity() * size_of::<super::ParticipantId>()
            + self.metadata.len()
            + self.items.capacity() * size_of::<(Key, Value)>()
            + items.sum::<usize>()
    }
}

fn shared(key: &Key) -> usize {
    SHARED_BYTES + key.bytes().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        item::{Fingerprint, Metadata},
        message::{Guard, KeyRange, LeaseId, Mode, ParticipantId},
        timestamp::ClientId,
    };

    const TIMESTAMP: Timestamp = Timestamp { time: 7, client: ClientId(3) };

    /// What a request with 1,000 elements takes more than one of the same kind without any.
    fn more(request: impl Fn(usize) -> Request) -> usize {
        request(1000).memory_bytes() - request(0).memory_bytes()
    }

    #[test]
    fn every_list_of_a_request_counts() {
        let key = Key::new(b"a").unwrap();
        let (lease, keys) = (LeaseId::default(), |count| vec![key.clone(); count]);
        let timestamps = |count| vec![TIMESTAMP; count];
        let part = |participants, noted, items| {
            let metadata = Metadata::WriteSet(vec![Fingerprint(1); noted]);
            let items = vec![(key.clone(), Value::new(&[7; 100]).unwrap()); items];
            Part {
                timestamp: TIMESTAMP,
                participants: vec![ParticipantId(1); participants],
                guard: Guard::Open,
                metadata,
                items,
            }
        };
        let (of_key, of_timestamp) = (57 * 1000, 16 * 1000);
        assert_eq!(more(|count| Request::Get { lease, keys: keys(count) }), of_key);
        assert_eq!(more(|count| Request::Timestamps { lease, keys: keys(count) }), of_key);
        assert_eq!(more(|count| Request::Among { lease, keys: keys(count), timestamps: vec![] }), of_key);
        assert_eq!(
            more(|count| Request::Among { lease, keys: vec![], timestamps: timestamps(count) }),
            of_timestamp
        );
        assert_eq!(more(|count| Request::Settled { timestamps: timestamps(count) }), of_timestamp);
        assert_eq!(more(|count| Request::Ended { timestamps: timestamps(count) }), of_timestamp);
        let none = Preconditions::default;
        let prepare =
            |settled, preconditions| Request::Prepare { part: part(0, 0, 0), settled, preconditions };
        assert_eq!(more(|count| prepare(timestamps(count), none())), of_timestamp);
        let expected = |count| Preconditions { expected: vec![(0, TIMESTAMP); count], ..none() };
        assert_eq!(more(|count| prepare(vec![], expected(count))), 24 * 1000);
        let put = |part, preconditions| Request::Put { part, preconditions };
        assert_eq!(more(|count| put(part(0, 0, 0), expected(count))), 24 * 1000);
        assert_eq!(more(|count| put(part(count, 0, 0), none())), 2 * 1000);
        assert_eq!(more(|count| put(part(0, count, 0), none())), 8 * 1000);
        assert_eq!(more(|count| put(part(0, 0, count), none())), of_key + (16 + 32 + 100) * 1000);
        let wanted = |count| vec![(key.clone(), Mode::Shared); count];
        assert!(more(|count| Request::Lock { owner: TIMESTAMP, wanted: wanted(count) }) > of_key);
        let range = |count| KeyRange { prefix: vec![0; count], ..KeyRange::default() };
        assert_eq!(more(|count| Request::Scan { lease, range: range(count) }), 1000);
    }
}
