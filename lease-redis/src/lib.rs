#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod ballot;
mod cluster;
mod config;
mod connection;
mod contention;
mod diagnose;
#[cfg(feature = "simulation")]
mod dial;
mod election;
mod error;
mod failover;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod key_space;
mod lock;
mod node;
mod nodes;
mod pulse;
mod quorum;
mod quorum_config;
mod reach;
mod request;
mod script;
mod sentinels;
mod server_time;
mod store;
mod table;
mod topology;
mod value;
mod watch;

pub use config::RedisStoreBuilder;
#[cfg(feature = "simulation")]
pub use dial::Dialer;
pub use quorum::RedisQuorum;
pub use quorum_config::RedisQuorumBuilder;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use script::script;
pub use store::RedisStore;
