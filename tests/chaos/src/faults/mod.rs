//! Faults, and the code that injects them. [`nemesis`] injects overlapping faults, and [`episodes`]
//! injects one fault at a time.

pub(crate) mod episodes;
pub(crate) mod fault;
mod make;
pub(crate) mod nemesis;
mod repair;
pub(crate) mod single_fault;
mod spoiled_key;
