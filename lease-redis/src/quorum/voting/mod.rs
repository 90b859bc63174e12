//! Proposals of tokens, the nodes' votes, and the counts that decide about a grant.
//!
//! Start with [`election`]: one proposal of a token, and the votes that the nodes deliver. A [`ballot`]
//! counts the votes. A [`tally`] counts replies to a heartbeat. [`proposals`] selects the next token.
//! [`contention`] stores which keys have several contenders. [`unanswered`] stores proposals of claims without
//! an answer. [`freed`] counts the nodes that have freed a key.

pub(crate) mod answer_count;
pub(crate) mod ballot;
pub(crate) mod contention;
pub(crate) mod election;
pub(crate) mod freed;
pub(crate) mod proposals;
pub(crate) mod tally;
pub(crate) mod unanswered;
