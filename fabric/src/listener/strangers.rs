//! Keeps the callers that have not proved the cluster key yet, and chooses one to drop when there
//! are too many.
//!
//! Invariants
//! - Callers are bounded in two classes: those that have sent nothing valid yet, and those whose
//!   hello is valid so far. A full class drops one of its own callers, so silent callers never
//!   displace one that sends a hello.
//! - The dropped caller is the oldest one from the origin that has the most callers in the class.
//!   So a single origin cannot displace callers of another one, and a new caller is never refused
//!   in favour of an old one. An origin is a host, a /64 network of IP version 6, or a process of
//!   this host. All callers whose origin the kernel does not tell count as one origin.
//! - Each caller has a limited time, counted from its arrival, whatever it sends meanwhile.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

/// The origin of a caller, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A host. For IP version 6 its /64 network, within which a host may choose its addresses.
    Host(IpAddr),
    /// A process of this host.
    Process(i32),
    /// The kernel does not tell.
    Unknown,
}

impl Origin {
    /// The origin of a caller with this address.
    pub(crate) fn of_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                Self::Host(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into())
            }
            address => Self::Host(address),
        }
    }
}

/// The progress of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Class {
    Silent,
    Speaking,
}

#[derive(Debug)]
struct Stranger<T> {
    caller: T,
    origin: Origin,
    class: Class,
    since: Instant,
}

/// All callers that have not proved the cluster key, by names that count up in the order of
/// arrival.
#[derive(Debug)]
pub(super) struct Strangers<T> {
    all: BTreeMap<u64, Stranger<T>>,
    /// Number of callers per class and origin. No entry is 0.
    counts: HashMap<(Class, Origin), usize>,
    next: u64,
    class_max: usize,
    time_max: Duration,
}

impl<T> Strangers<T> {
    /// An empty table for at most `class_max` callers in each class, each for at most `time_max`.
    pub(super) fn new(class_max: usize, time_max: Duration) -> Self {
        Self { all: BTreeMap::new(), counts: HashMap::new(), next: 0, class_max, time_max }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The name of the next caller that is added.
    pub(super) fn next_name(&self) -> u64 {
        self.next
    }

    /// Adds a caller. Returns the caller that was dropped for it, if any.
    pub(super) fn add(&mut self, caller: T, origin: Origin, now: Instant) -> Option<T> {
        let dropped = self.make_room(Class::Silent);
        let stranger = Stranger { caller, origin, class: Class::Silent, since: now };
        self.all.insert(self.next, stranger);
        self.next += 1;
        *self.counts.entry((Class::Silent, origin)).or_default() += 1;
        dropped
    }

    pub(super) fn get_mut(&mut self, name: u64) -> Option<&mut T> {
        self.all.get_mut(&name).map(|stranger| &mut stranger.caller)
    }

    /// Notes that the hello of a caller is valid so far. Returns the caller that was dropped for
    /// it, if any.
    pub(super) fn mark_speaking(&mut self, name: u64) -> Option<T> {
        let origin = match self.all.get(&name) {
            Some(Stranger { class: Class::Silent, origin, .. }) => *origin,
            _ => return None,
        };
        let dropped = self.make_room(Class::Speaking);
        if let Some(stranger) = self.all.get_mut(&name) {
            stranger.class = Class::Speaking;
            self.forget((Class::Silent, origin));
            *self.counts.entry((Class::Speaking, origin)).or_default() += 1;
        }
        dropped
    }

    /// Removes a caller.
    pub(super) fn remove(&mut self, name: u64) -> Option<T> {
        let stranger = self.all.remove(&name)?;
        self.forget((stranger.class, stranger.origin));
        Some(stranger.caller)
    }

    /// Removes the caller that is the first to be dropped, if there is any.
    pub(super) fn remove_first(&mut self) -> Option<T> {
        self.remove_of(Class::Silent).or_else(|| self.remove_of(Class::Speaking))
    }

    /// Removes a caller whose time is over.
    pub(super) fn expire(&mut self, now: Instant) -> Option<T> {
        let (name, oldest) = self.all.first_key_value()?;
        let is_over = now.saturating_duration_since(oldest.since) >= self.time_max;
        let name = is_over.then_some(*name)?;
        self.remove(name)
    }

    /// When the time of the oldest caller is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.first_key_value().map(|(_, oldest)| oldest.since + self.time_max)
    }

    fn make_room(&mut self, class: Class) -> Option<T> {
        let count: usize =
            self.counts.iter().filter(|((of, _), _)| *of == class).map(|(_, count)| *count).sum();
        if count < self.class_max { None } else { self.remove_of(class) }
    }

    /// Removes the oldest caller of a class that has the origin with the most callers in it.
    fn remove_of(&mut self, class: Class) -> Option<T> {
        let of_class = self.counts.iter().filter(|((of, _), _)| *of == class);
        let ((_, crowd), _) = of_class.max_by_key(|(_, count)| **count)?;
        let crowd = *crowd;
        let is_of_it = |stranger: &Stranger<T>| stranger.class == class && stranger.origin == crowd;
        let name = self.all.iter().find(|(_, stranger)| is_of_it(stranger)).map(|(name, _)| *name)?;
        self.remove(name)
    }

    fn forget(&mut self, key: (Class, Origin)) {
        if let Some(count) = self.counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Origin = Origin::Host(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
    const TIME: Duration = Duration::from_secs(2);

    fn table(class_max: usize) -> (Strangers<u64>, Instant) {
        (Strangers::new(class_max, TIME), Instant::now())
    }

    #[test]
    fn the_oldest_silent_caller_goes_for_a_new_one() {
        let (mut strangers, now) = table(3);
        for caller in 0..3 {
            assert_eq!(strangers.add(caller, LOCAL, now), None);
        }
        assert_eq!((strangers.add(3, LOCAL, now), strangers.add(4, LOCAL, now)), (Some(0), Some(1)));
        assert_eq!(strangers.len(), 3);
    }

    #[test]
    fn silent_callers_never_push_out_one_that_speaks() {
        let (mut strangers, now) = table(2);
        strangers.add(7, LOCAL, now);
        assert_eq!(strangers.mark_speaking(0), None);
        for caller in 100..200 {
            strangers.add(caller, LOCAL, now);
        }
        assert_eq!((strangers.get_mut(0).copied(), strangers.len()), (Some(7), 3));
        // Callers that speak are bounded among themselves.
        for name in [99, 100] {
            let dropped = strangers.mark_speaking(name);
            assert_eq!(dropped, (name == 100).then_some(7), "{name}");
        }
    }

    #[test]
    fn an_origin_pushes_out_its_own_callers_and_not_those_of_another_one() {
        let (mut strangers, now) = table(4);
        let other = Origin::of_address("10.0.0.9".parse().unwrap());
        strangers.add(1, other, now);
        let dropped: Vec<Option<u64>> = (10..20).map(|caller| strangers.add(caller, LOCAL, now)).collect();
        let expected: Vec<Option<u64>> =
            (0..10_u64).map(|step| step.checked_sub(3).map(|at| at + 10)).collect();
        assert_eq!(dropped, expected);
        assert_eq!(strangers.get_mut(0), Some(&mut 1));
        // The same holds when a caller is dropped for its descriptor.
        assert_eq!((strangers.remove_first(), strangers.remove_first()), (Some(17), Some(18)));
    }

    #[test]
    fn a_caller_is_dropped_when_its_time_is_over_whatever_it_says() {
        let (mut strangers, now) = table(4);
        strangers.add(1, LOCAL, now);
        strangers.add(2, LOCAL, now + TIME / 2);
        strangers.mark_speaking(0);
        assert_eq!((strangers.expire(now + TIME / 2), strangers.deadline()), (None, Some(now + TIME)));
        assert_eq!((strangers.expire(now + TIME), strangers.expire(now + TIME)), (Some(1), None));
        assert_eq!(strangers.expire(now + 2 * TIME), Some(2));
        assert_eq!((strangers.len(), strangers.counts.len(), strangers.deadline()), (0, 0, None));
    }

    #[test]
    fn addresses_of_one_network_of_ip_version_6_are_one_origin() {
        let of = |text: &str| Origin::of_address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
