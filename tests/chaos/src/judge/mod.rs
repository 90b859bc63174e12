//! The events of a run, and the rules that it broke.
//!
//! Start at [`safety`], which judges the [`ledger`], and at [`progress`], which judges the
//! [`observations`] of probes and of the [`canary`].

pub(crate) mod canary;
pub(crate) mod counted;
pub(crate) mod ledger;
pub(crate) mod observations;
pub(crate) mod order;
pub(crate) mod progress;
pub(crate) mod recovery;
pub(crate) mod safety;
