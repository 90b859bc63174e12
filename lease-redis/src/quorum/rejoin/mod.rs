//! Delays the votes of a server that has restarted: it may have forgotten what it accepted.
//!
//! [`admission`] checks each new connection to a node. [`membership`] admits a client to the node's votes.

pub(crate) mod admission;
pub(crate) mod membership;
