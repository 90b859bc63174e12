//! Runs the same scenarios on each stream: on the simulated stream, and on servers over HTTP.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod scenarios;
#[cfg(feature = "aws")]
mod scripted;
mod test_stream;

#[cfg(feature = "aws")]
use std::sync::Arc;

#[cfg(feature = "aws")]
use lease_test_servers::kinesis::Server;

use self::test_stream::TestStream;

/// One `kinesis-local` serves all scenarios, because it starts slowly.
macro_rules! each_stream {
    ($($scenario:ident,)*) => {
        mod sim {
            use super::*;

            $(
                #[tokio::test(start_paused = true)]
                async fn $scenario() {
                    scenarios::$scenario(&TestStream::sim()).await;
                }
            )*
        }

        #[cfg(feature = "aws")]
        mod ferrokinesis {
            use super::*;

            $(
                #[tokio::test]
                async fn $scenario() {
                    let server = Arc::new(Server::ferrokinesis().await);
                    scenarios::$scenario(&TestStream::on(&server).await).await;
                }
            )*
        }

        #[cfg(feature = "aws")]
        #[tokio::test]
        async fn kinesis_local_passes_all_scenarios() {
            let Some(server) = Server::kinesis_local().await else { return };
            let server = Arc::new(server);
            $(
                scenarios::$scenario(&TestStream::on(&server).await).await;
            )*
        }
    };
}

each_stream! {
    all_shards_are_listed,
    reading_starts_at_requested_position,
    fetch_returns_at_most_requested_records,
    split_shard_ends_and_children_are_found,
    merged_shard_has_both_parents,
    old_iterator_is_expired,
    invalid_iterator_is_an_error,
    unknown_shard_is_no_such_shard,
    records_are_pushed_until_shard_ends,
}
