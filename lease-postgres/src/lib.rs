#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attributes;
mod builder;
#[cfg_attr(
    not(feature = "tls"),
    expect(clippy::clone_on_copy, reason = "only the connector without TLS can be copied")
)]
mod connection;
mod error;
mod free_claim;
mod hand_on;
mod in_turn;
mod plain_release;
mod recent_keys;
mod reply;
mod sessions;
mod statements;
mod store;
mod table;

pub use builder::PostgresStoreBuilder;
pub use store::PostgresStore;
