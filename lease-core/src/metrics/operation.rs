//! The requests to a store, as metrics name them.

/// A kind of request to a [`LockStore`](crate::store::LockStore).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreOperation {
    /// A claim of a key.
    Obtain,
    /// A claim of a key that another process handed over.
    Adopt,
    /// A heartbeat, or a batch of heartbeats.
    Heartbeat,
    /// A release of a key, also with a transfer or a deletion of its record.
    Release,
    /// A request for the holder of a key.
    Holder,
    /// A request to a queue of waiters: for a place, or to leave.
    Queue,
}

impl StoreOperation {
    /// All operations, to register them before the first request.
    pub const ALL: [Self; 6] =
        [Self::Obtain, Self::Adopt, Self::Heartbeat, Self::Release, Self::Holder, Self::Queue];

    /// The name in lower case, for the label of a metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::Obtain => "obtain",
            Self::Adopt => "adopt",
            Self::Heartbeat => "heartbeat",
            Self::Release => "release",
            Self::Holder => "holder",
            Self::Queue => "queue",
        }
    }
}
