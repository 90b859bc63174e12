#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod column;
mod config;
mod dated;
mod foreign;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod item;
#[doc(hidden)]
pub mod parts;
mod schema;
mod standing;
mod store;
mod table;
mod time;
mod write;

pub use column::Column;
pub use config::{DynamoDbStoreBuilder, TimeMode};
pub use store::DynamoDbStore;
