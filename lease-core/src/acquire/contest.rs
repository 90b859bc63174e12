//! The parts of a locker that its waiters use.

use std::sync::Arc;

use tokio::sync::{Mutex, watch};

use crate::acquire::contended_keys::ContendedKeys;
use crate::acquire::unsettled::UnsettledClaims;
use crate::heartbeat::locker_runtime::LockerRuntime;
use crate::settings::Settings;
use crate::waiter_queue::Queue;

/// The parts of a locker that a waiter uses, and the waiter's position in the queue.
#[derive(Clone, Copy)]
pub(crate) struct Contest<'a> {
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) runtime: &'a LockerRuntime,
    pub(crate) queue: &'a Arc<Queue>,
    pub(crate) unsettled: &'a Arc<UnsettledClaims>,
    pub(crate) contended: &'a ContendedKeys,
    /// If a caller waits for any one of several keys, the contenders for the keys share this mutex. While one
    /// contender makes an attempt, the others pause. Once it has obtained its key, the others are dropped.
    pub(crate) one_at_a_time: &'a Mutex<()>,
    pub(crate) position: &'a Position,
}

/// The number of waiters ahead, or `None` while this number is unknown.
pub(crate) type Position = watch::Sender<Option<u64>>;
