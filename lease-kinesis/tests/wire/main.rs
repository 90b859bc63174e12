//! The same stories of a stream, whatever it is: in memory, or a server that is read over HTTP.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

#[cfg(feature = "aws")]
mod scripted;
mod stories;
mod world;

#[cfg(feature = "aws")]
use std::sync::Arc;

#[cfg(feature = "aws")]
use lease_tests::kinesis::Server;

use self::world::World;

/// Each story for each stream; for the server that takes long to start, all of them on one.
macro_rules! tell {
    ($($story:ident,)*) => {
        mod sim {
            use super::*;

            $(
                #[tokio::test(start_paused = true)]
                async fn $story() {
                    stories::$story(&World::sim()).await;
                }
            )*
        }

        #[cfg(feature = "aws")]
        mod ferrokinesis {
            use super::*;

            $(
                #[tokio::test]
                async fn $story() {
                    let server = Arc::new(Server::ferrokinesis().await);
                    stories::$story(&World::on(&server).await).await;
                }
            )*
        }

        #[cfg(feature = "aws")]
        #[tokio::test]
        async fn kinesis_local_agrees() {
            let Some(server) = Server::kinesis_local().await else { return };
            let server = Arc::new(server);
            $(
                stories::$story(&World::on(&server).await).await;
            )*
        }
    };
}

tell! {
    all_shards_are_listed,
    reading_begins_where_it_is_told_to,
    a_fetch_brings_no_more_than_asked_for,
    a_split_shard_ends_and_its_children_are_found,
    a_merged_shard_has_both_parents,
    an_old_iterator_is_expired,
    what_is_no_iterator_is_told,
    an_unknown_shard_is_no_such_shard,
    records_are_pushed_until_the_shard_ends,
}
