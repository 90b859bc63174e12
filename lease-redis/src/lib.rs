#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod quorum;
mod scripts;
#[cfg(feature = "simulation")]
mod simulation;
mod single;

#[cfg(feature = "simulation")]
pub use connection::dial::Dialer;
pub use quorum::RedisQuorum;
pub use quorum::builder::RedisQuorumBuilder;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use simulation::script;
pub use single::RedisStore;
pub use single::builder::RedisStoreBuilder;
