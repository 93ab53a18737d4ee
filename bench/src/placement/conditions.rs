//! Defines the conditions of a point: the limits of the nodes' processor time and of the wire to
//! the nodes.

/// The limits of the nodes and of the wire to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conditions {
    /// Share of the processor time of all cores, for all nodes together.
    pub cpu_share_percent: u32,
    /// Megabytes (10^6) per second of the wire; `None` without a limit.
    pub wire_mb_per_s: Option<u32>,
}

/// Sets the limits.
pub trait Shaping {
    /// Sets these limits, until the next call.
    ///
    /// # Errors
    /// A text for people.
    fn shape(&mut self, conditions: Conditions) -> Result<(), String>;
}
