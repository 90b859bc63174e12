#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod quorum;
mod scripts;
mod single;

#[cfg(feature = "simulation")]
pub use connection::dial::Dialer;
pub use quorum::RedisQuorum;
pub use quorum::builder::RedisQuorumBuilder;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use scripts::script;
pub use single::RedisStore;
pub use single::builder::RedisStoreBuilder;
