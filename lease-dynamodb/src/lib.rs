#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod items;
mod lease_state;
mod schema;
mod sessions;
mod settings;
mod store;
mod table;
mod time;
mod write;

pub use config::DynamoDbStoreBuilder;
pub use items::Column;
pub use settings::TimeMode;
pub use store::DynamoDbStore;
