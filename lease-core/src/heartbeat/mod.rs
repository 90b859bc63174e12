//! Heartbeats: one task per locker sends the heartbeats of all its leases.
//!
//! Start with [`heartbeater`], the task; [`locker_runtime`] starts it on a tokio runtime, and runs the locker's
//! requests there. A lease and the task share a [`lease_cell`], which stores whether the lease is held or how
//! it [ended](ending). A lease sends commands through [`command_queue`]. The task keeps one [`entry`] per lease
//! and orders them by time in [`timer_queue`]; [`batch`] sends heartbeats together. [`release`] frees keys, and
//! [`expiry_reason`] explains an expired lease in the log.

pub(crate) mod batch;
pub(crate) mod command_queue;
pub(crate) mod ending;
pub(crate) mod entry;
pub(crate) mod expiry_reason;
pub(crate) mod heartbeater;
pub(crate) mod lease_cell;
pub(crate) mod locker_runtime;
pub(crate) mod poll_delay;
pub(crate) mod release;
pub(crate) mod timer_queue;
pub(crate) mod wake_timer;
