//! Faults, and what injects them.
//!
//! [`nemesis`] makes many at once, of the kinds in [`fault`]. [`episodes`] makes one at a time, of the
//! kinds in [`single_fault`]; [`make`] is what each of those does to servers.

pub(crate) mod episodes;
pub(crate) mod fault;
mod make;
pub(crate) mod nemesis;
pub(crate) mod single_fault;
