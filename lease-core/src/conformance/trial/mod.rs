//! The simulation: several processes contend for leases on one store, in simulated time, with faults.
//!
//! Start with [`plan`], which configures a trial, and [`run`], which runs it. [`ledger`] finds violations.

pub(crate) mod ledger;
pub(crate) mod network_faults;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod seed_range;
pub(crate) mod shared_store;
pub(crate) mod simulation;
pub(crate) mod verdict;
pub(crate) mod witness;
