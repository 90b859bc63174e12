//! How claims become votes, and votes a grant.
//!
//! Start with [`election`]: one proposal of a token, and the votes that the nodes deliver. A [`ballot`] counts
//! them; a [`tally`] counts answers that need no token. [`proposals`] is the clock of the tokens. [`contention`]
//! remembers which keys have several contenders. [`freed`] counts the nodes that have freed a key.

pub(crate) mod answer_count;
pub(crate) mod ballot;
pub(crate) mod contention;
pub(crate) mod election;
pub(crate) mod freed;
pub(crate) mod proposals;
pub(crate) mod tally;
