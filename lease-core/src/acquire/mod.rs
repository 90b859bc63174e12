//! Obtaining a key: one attempt, waiting for a key, and claims whose outcome is unknown.
//!
//! Start with [`pending_attempt`], which sends one claim and turns the answer into an [`attempt`].
//! [`waiting`] waits until the key is granted, with [`in_turn`] if the store keeps a queue.
//! [`unsettled`] keeps the claims without an answer.

pub(crate) mod attempt;
pub(crate) mod contended_keys;
pub(crate) mod contest;
pub(crate) mod in_turn;
pub(crate) mod pending_attempt;
pub(crate) mod slots;
pub(crate) mod standing;
pub(crate) mod unsettled;
pub(crate) mod waiting;
