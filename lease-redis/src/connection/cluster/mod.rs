//! Follows the slots of a Cluster.
//!
//! Start with [`router`], which sends each request to the master of its slot. [`topology`] parses the answer
//! of `CLUSTER SLOTS`.

pub(crate) mod router;
mod topology;
