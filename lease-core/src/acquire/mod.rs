//! Obtaining a key: one attempt, waiting for a key, and claims whose outcome is unknown.
//!
//! Start with [`attempt`]: it sends one claim and turns the answer into a lease. [`waiting`]
//! repeats attempts until the key is granted. In each locker, only one waiter at a time contends
//! for a key. [`unsettled`] keeps the claims without an answer, so that the next attempt repeats
//! them.

pub(crate) mod attempt;
pub(crate) mod unsettled;
pub(crate) mod waiting;
