//! Items for crates that extend this crate.
//!
//! - [`Coexistence`]: shares a table with workers of another library, as `lease-kcl` does.
//! - [`CheckpointScope`] and [`CheckpointWriter`]: call a [`RecordProcessor`](crate::RecordProcessor) without
//!   a [`Worker`](crate::Worker), as `lease-multilang` does.
//! - [`shard_row`]: the attributes of a shard's row, for a store that maps them.
//! - [`LogThrottle`]: limits the log messages of an event that repeats.

pub use crate::checkpoint::{CheckpointScope, CheckpointWriter, Delivered};
pub use crate::log_throttle::{LogLevel, LogThrottle};
pub use crate::plan::rendezvous_hash;
pub use crate::worker::coexistence::{Coexistence, SharedTable};

pub mod shard_row {
    //! The row of a shard, and the names of its attributes.

    pub use crate::table::row::{
        AT_TIMESTAMP, CHECKPOINT, LATEST, OWNER, SHARD_END, ShardRow, TIMESTAMP,
    };
}
