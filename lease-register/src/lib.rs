#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
#[cfg(feature = "conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;
mod decision;
mod known;
mod lease_state;
mod lock_store;
mod observed;
mod random;
mod record;
mod register;
mod requests;
mod settings;
mod store;
mod table;

pub use builder::RegisterStoreBuilder;
pub use known::Known;
pub use record::{Former, Held, Record, Reservation};
pub use register::{Register, Replaced, Version, Versioned, Versions};
pub use store::RegisterStore;
