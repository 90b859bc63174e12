//! The parts of a locker that its waiters use.

use std::sync::Arc;

use tokio::sync::{Mutex, watch};

use crate::acquire::contended_keys::ContendedKeys;
use crate::acquire::unsettled::UnsettledClaims;
use crate::heartbeat::locker_runtime::LockerRuntime;
use crate::settings::Settings;
use crate::waiter_queue::Queue;

#[derive(Clone, Copy)]
pub(crate) struct Contest<'a> {
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) runtime: &'a LockerRuntime,
    pub(crate) queue: &'a Arc<Queue>,
    pub(crate) unsettled: &'a Arc<UnsettledClaims>,
    pub(crate) contended: &'a ContendedKeys,
    /// Shared by the contenders of a caller that waits for any one of several keys. While a
    /// contender makes an attempt, the other contenders pause.
    pub(crate) one_at_a_time: &'a Mutex<()>,
    pub(crate) position: &'a Position,
}

/// The number of waiters ahead, or `None` while this number is unknown.
pub(crate) type Position = watch::Sender<Option<u64>>;
