//! The simulation: several processes contend for leases on one store, in simulated time, with faults.
//!
//! Start with [`plan`], which configures a trial, and [`run`], which runs it. [`simulation`] runs the
//! processes in one thread. [`ledger`] records grants, writes, and how long leases were held, and finds
//! violations. [`witness`] observes the leases for the ledger. [`seed_range`] runs a trial for many seeds.

pub(crate) mod ledger;
pub(crate) mod network_faults;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod seed_range;
pub(crate) mod shared_store;
pub(crate) mod simulation;
pub(crate) mod verdict;
pub(crate) mod witness;
