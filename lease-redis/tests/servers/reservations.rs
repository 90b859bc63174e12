//! Reservations over a quorum.

use std::time::Duration;

use lease_core::store::{LockStore, Obtained};
use lease_test_servers::redis::{RedisServer, available};

use crate::setting::{claim, eventually, has_lease, obtain, quorum};

const LONG: Duration = Duration::from_secs(600);

/// Only one node of the majority had stored the grant.
#[tokio::test]
async fn reservation_outlasts_a_node_that_had_the_grant() {
    if !available() {
        return;
    }
    let mut servers = [
        RedisServer::start(),
        RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]),
        RedisServer::start(),
    ];
    let store = quorum(&servers).await;
    servers[2].kill();
    let grant = obtain(&store, "a").await;
    eventually("granted on both servers", async || {
        servers[..2].iter().all(has_lease).then_some(())
    })
    .await;
    servers[2].start_again();
    let (head, tail) = servers.split_at_mut(1);
    tail[0].kill();

    eventually("released", async || store.release(&grant, Some(LONG)).await.ok()).await;
    head[0].hang();
    tail[0].start_again();

    let refused = eventually("an answer", async || store.obtain(&claim("b")).await.ok()).await;
    head[0].go_on();
    assert!(matches!(refused, Obtained::Held(_)), "{refused:?}");
}
