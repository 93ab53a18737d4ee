//! Defines the ids of a node's connections, of its requests in progress and of their operations.

/// Names a connection for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// A request in progress: its index in the reactor's table, reused only after the request has
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskIndex(pub(crate) u32);

/// Addresses a task: its index in the task table, and the place of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its index in the task table.
    pub(crate) task: TaskIndex,
    /// The place of its connection among those of the reactor.
    pub(crate) link: usize,
}

impl Place {
    /// The id of one of its operations, at a device or on the wire.
    pub(crate) fn operation(self, part: u32) -> u64 {
        u64::from(self.task.0) << 32 | u64::from(part)
    }

    /// The task and the part that an operation's id encodes.
    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
    pub(crate) fn of_operation(name: u64) -> (TaskIndex, u32) {
        (TaskIndex((name >> 32) as u32), name as u32)
    }
}
