//! The promises of a store, one test each, and the wrapper that injects faults into its requests.
//!
//! Start with [`promises`]. Each promise gets a [`case::Case`]: a store behind [`faulty::Faulty`].
//! [`race`] sends two requests at the same time.

pub(crate) mod case;
pub(crate) mod faulty;
#[doc(hidden)] // only the macros name them
pub mod promises;
pub(crate) mod race;
pub(crate) mod table_case;
