//! How many requests each operation makes, by etcd's own count.

use lease_core::Locker;
use lease_core::store::{Beat, Heartbeat, LockStore};
use lease_test_servers::claims::{claim, held, obtain};
use lease_test_servers::etcd::EtcdServer;

use crate::{TTL, key, store};

/// Reads and transactions since the last call.
struct Counted<'a> {
    server: &'a EtcdServer,
    last: (u64, u64),
}

impl<'a> Counted<'a> {
    fn from_now(server: &'a EtcdServer) -> Self {
        let mut counted = Self { server, last: (0, 0) };
        counted.take();
        counted
    }

    fn take(&mut self) -> (u64, u64) {
        let now = (self.server.requests("Range"), self.server.requests("Txn"));
        let last = std::mem::replace(&mut self.last, now);
        (now.0 - last.0, now.1 - last.1)
    }
}

#[tokio::test]
async fn requests_of_each_operation_are_counted() {
    let Some(server) = EtcdServer::start() else { return };
    let (locker, other) = (Locker::new(store(&server).await), Locker::new(store(&server).await));
    let mut sent = Counted::from_now(&server);

    locker.wait_until_obtained(&key()).await.unwrap().release().await.unwrap();
    assert_eq!(sent.take(), (1, 3), "a new key: a read, an empty record, a grant, a release");
    other.wait_until_obtained(&key()).await.unwrap().release().await.unwrap();
    assert_eq!(sent.take(), (1, 2), "first contact: a read, a grant, a release");
    other.wait_until_obtained(&key()).await.unwrap().release().await.unwrap();
    assert_eq!(sent.take(), (0, 2), "the same process again: a grant, a release");
}

#[tokio::test]
async fn heartbeat_is_one_request() {
    let Some(server) = EtcdServer::start() else { return };
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let mut sent = Counted::from_now(&server);

    for beat in 1..=10 {
        let beat = store.heartbeat(&grant, Beat::new(beat)).await.unwrap();
        assert_eq!(beat, Heartbeat::Extended);
    }
    assert_eq!(sent.take(), (0, 10));

    held(store.obtain(&claim(&key(), "b", TTL)).await.unwrap());
    assert_eq!(sent.take(), (1, 0), "a refused claim writes nothing");
}
