//! Faults, and the code that injects them.
//!
//! [`nemesis`] injects overlapping faults, of the kinds in [`fault`]. [`episodes`] injects one fault at a
//! time, of the kinds in [`single_fault`]; [`make`] has their commands and signals.
//! [`repair`] names the repairs of overlapping faults. [`spoiled_key`] writes a list under a lease's name.

pub(crate) mod episodes;
pub(crate) mod fault;
mod make;
pub(crate) mod nemesis;
mod repair;
pub(crate) mod single_fault;
mod spoiled_key;
