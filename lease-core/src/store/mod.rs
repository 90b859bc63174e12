//! The traits that a store implements, and the values that it receives and returns.
//!
//! Start with [`LockStore`]: every store implements it. [`LeaseTable`] is for stores whose records have
//! attributes and can be listed. [`InTurn`] is for stores that keep a queue of waiters per key, and
//! [`Sessions`] for stores that keep leases under a session. A program that only obtains leases needs none of
//! them: it starts with [`Locker`](crate::Locker). An operator's tool calls `evict`, `scan` and `list` on the
//! store itself.
//!
//! `async_trait`, [`BoxStream`] and [`Stream`] are re-exported, since a store must match their versions.

pub(crate) mod attributes;
pub(crate) mod grant;
pub(crate) mod in_turn;
pub(crate) mod lease_table;
pub(crate) mod lock_store;
pub(crate) mod nonce;
pub(crate) mod observations;
pub(crate) mod scope;
pub(crate) mod server_clock;
pub(crate) mod session;
pub(crate) mod time_limit;

/// Put `#[async_trait]` on the `impl` of a store.
pub use async_trait::async_trait;
/// To read a stream, use `TryStreamExt` of the crate `futures-util`.
pub use futures_util::Stream;
/// To read a stream, use `TryStreamExt` of the crate `futures-util`.
pub use futures_util::stream::BoxStream;

pub use crate::clock::{BootClock, Clock, Moment, micros_since_1970};
pub use grant::{Beat, Claim, Grant, Heartbeat, HeldKey, Obtained, RequestNumber};
pub use in_turn::{Enqueued, InTurn, Notice, Notices, Place};
pub use lease_table::{LastGrant, LeaseRecord, LeaseTable, Reserved};
pub use lock_store::{Change, Freed, LockStore};
pub use nonce::Nonce;
pub use observations::{Observation, Observations};
pub use scope::{current_grant, work_under};
pub use server_clock::{ServerClock, ServerNow, Timestamp};
pub use session::{Ended, Parent, SessionState, Sessions, Vacancy};
pub use time_limit::within;
