//! Obtaining a key: one attempt, waiting for a key, and claims whose outcome is unknown.
//!
//! Start with [`pending_attempt`]: it sends one claim and turns the answer into an [`attempt`]. [`waiting`]
//! waits until the key is granted. If the store keeps a queue, [`in_turn`] stands in it, with one [`standing`]
//! claim; [`contended_keys`] notes for which keys waiters had to wait. Otherwise, attempts are repeated, and in
//! each locker, only one waiter at a time contends for a key: [`slots`] decides when each of the waiters that
//! a release wakes makes its attempt. [`unsettled`] keeps the claims without an answer, so that the next attempt
//! repeats them. [`contest`] is what a waiter needs of its locker.

pub(crate) mod attempt;
pub(crate) mod contended_keys;
pub(crate) mod contest;
pub(crate) mod in_turn;
pub(crate) mod pending_attempt;
pub(crate) mod slots;
pub(crate) mod standing;
pub(crate) mod unsettled;
pub(crate) mod waiting;
