//! Obtaining a key: one attempt, waiting for a key, and claims whose outcome is unknown.
//!
//! Start with [`pending_attempt`]: it sends one claim and turns the answer into an [`attempt`]. [`waiting`]
//! waits until the key is granted. If the store keeps a queue, [`in_turn`] waits in it with one [`standing`]
//! claim. Otherwise, [`waiting`] repeats attempts, and only one waiter of each locker contends for a key.
//! [`slots`] spreads the attempts of all waiters that a release wakes. [`contended_keys`] notes for which
//! keys waiters had to wait. [`unsettled`] keeps the claims without an answer, so that the next attempt
//! repeats them. [`contest`] has the parts of a locker that a waiter uses.

pub(crate) mod attempt;
pub(crate) mod contended_keys;
pub(crate) mod contest;
pub(crate) mod in_turn;
pub(crate) mod pending_attempt;
pub(crate) mod slots;
pub(crate) mod standing;
pub(crate) mod unsettled;
pub(crate) mod waiting;
