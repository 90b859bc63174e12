//! Delays the votes of a restarted server, because the server may have forgotten the grants that it accepted.
//!
//! [`admission`] checks each new connection to a node. [`membership`] admits a client to the node's votes.

pub(crate) mod admission;
pub(crate) mod membership;
