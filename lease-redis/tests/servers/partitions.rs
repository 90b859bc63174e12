//! A cut or silent network between a client and its servers. Rows are those of the README's table *What
//! happens when*.

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{BootClock, Clock, LockStore};
use lease_core::{LeaseState, LossCause, Released, StoreErrorKind};
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::claims::soon;
use lease_test_servers::proxy::Link;
use lease_test_servers::redis::RedisServer;

use crate::setting::{
    beat, claim, eventually, key, lease, lines, locker, obtain, obtain_eventually, one, quorum,
    quorum_at, refused, servers, urls_of,
};

const SHORT: Duration = Duration::from_secs(5);

/// The time-out is much shorter than a lease.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The client `here` reaches its servers through proxies.
struct Divided {
    servers: Vec<RedisServer>,
    lines: Vec<Link>,
    here: Arc<dyn LockStore>,
    elsewhere: Arc<dyn LockStore>,
}

impl Divided {
    async fn one_server() -> Option<Self> {
        let servers = servers::<1>()?;
        let lines = lines(&servers).await;
        let here = RedisStore::builder(lines[0].url());
        let here = Arc::new(here.with_timeout(TIMEOUT).connect().await.unwrap());
        let elsewhere = Arc::new(one(&servers[0]).await);
        Some(Self { servers: servers.into(), lines, here, elsewhere })
    }

    async fn quorum() -> Option<Self> {
        let servers = servers::<3>()?;
        let lines = lines(&servers).await;
        let here = RedisQuorum::builder(urls_of(&lines)).without_rejoin_delay();
        let here = Arc::new(here.with_timeout(TIMEOUT).connect().await.unwrap());
        let elsewhere = Arc::new(quorum(&servers).await);
        Some(Self { servers: servers.into(), lines, here, elsewhere })
    }

    async fn each() -> impl Iterator<Item = Self> {
        [Self::one_server().await, Self::quorum().await].into_iter().flatten()
    }

    fn majority(&self) -> &[Link] {
        &self.lines[..=self.lines.len() / 2]
    }
}

/// Row "the server, or a majority, is unreachable". In node-redlock, the holder was notified after the next
/// grant.
async fn holder_is_notified_before_the_next_grant(net: Divided, fault: fn(&Link)) {
    let locker = locker(Arc::clone(&net.here), SHORT);
    let lease = lease(&locker).await;
    let clock = BootClock::new();

    net.majority().iter().for_each(fault);
    let error = net.here.obtain(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(lease.is_held(), "the holder lost its lease early");
    let notified = async {
        let lost = lease.lost().await;
        (lost.cause, clock.now())
    };
    let granted = async {
        let next = obtain_eventually(&net.elsewhere, "other").await;
        (next, clock.now())
    };
    let ((cause, notified), (next, granted)) = tokio::join!(notified, granted);

    assert_eq!(cause, LossCause::Expired);
    assert!(notified < granted, "notified {:?} after the next grant", notified.since(granted));
    assert!(next.token > lease.token(), "{} after {}", next.token, lease.token());
    assert!(!lease.is_held());

    net.lines.iter().for_each(Link::heal);
    let holder = refused(&net.here).await;
    assert!(holder.holds(&next), "delayed requests have affected the next holder");
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyLost(LossCause::Expired));
}

#[tokio::test]
async fn holder_cut_off_from_its_server_is_notified_first() {
    let Some(net) = Divided::one_server().await else { return };
    holder_is_notified_before_the_next_grant(net, Link::cut).await;
}

#[tokio::test]
async fn holder_of_a_silent_server_is_notified_first() {
    let Some(net) = Divided::one_server().await else { return };
    holder_is_notified_before_the_next_grant(net, Link::hold).await;
}

#[tokio::test]
async fn holder_cut_off_from_a_majority_is_notified_first() {
    let Some(net) = Divided::quorum().await else { return };
    holder_is_notified_before_the_next_grant(net, Link::cut).await;
}

#[tokio::test]
async fn holder_of_a_silent_majority_is_notified_first() {
    let Some(net) = Divided::quorum().await else { return };
    holder_is_notified_before_the_next_grant(net, Link::hold).await;
}

/// Row "the server, or a majority, is unreachable". In distributed-lock, a failed renewal was the last
/// renewal.
async fn lease_survives(net: Divided, fault: fn(&Link)) {
    let locker = locker(Arc::clone(&net.here), SHORT * 3);
    let lease = lease(&locker).await;
    let mut state = lease.state();

    net.majority().iter().for_each(fault);
    let at_risk = state.wait_for(|state| *state == LeaseState::AtRisk);
    soon(at_risk).await.unwrap();
    net.lines.iter().for_each(Link::heal);

    let held = state.wait_for(|state| *state == LeaseState::Held);
    soon(held).await.unwrap();
    assert_eq!(refused(&net.elsewhere).await.token, Some(lease.token()));
    assert_eq!(lease.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn lease_survives_a_short_partition() {
    for net in Divided::each().await {
        lease_survives(net, Link::cut).await;
    }
}

#[tokio::test]
async fn lease_survives_a_short_silence() {
    for net in Divided::each().await {
        lease_survives(net, Link::hold).await;
    }
}

/// A lessee holds the key. Two clients reach different minorities of the quorum.
#[tokio::test]
async fn clients_with_different_minorities_are_granted_nothing() {
    let Some(net) = Divided::quorum().await else { return };
    let other_lines = lines(&net.servers).await;
    let other = quorum_at(urls_of(&other_lines)).await;
    let grant = obtain_eventually(&net.here, "a").await;
    net.lines[0].cut();
    net.lines[1].cut();
    other_lines[1].cut();
    other_lines[2].cut();

    for _ in 0..5 {
        assert!(net.here.obtain(&claim("b")).await.is_err());
        assert!(other.obtain(&claim("c")).await.is_err());
    }

    net.lines.iter().chain(&other_lines).for_each(Link::heal);
    assert_eq!(beat(&net.here, &grant).await, lease_core::store::Heartbeat::Extended);
    eventually("the holder is reported with its token", async || {
        beat(&net.here, &grant).await;
        (refused(&other).await.token == Some(grant.token)).then_some(())
    })
    .await;
}

/// Row "a minority hangs or is gone". At first, the watch covers two nodes. Only one of them has the lease.
#[tokio::test]
async fn watch_adds_a_missed_node_later() {
    let Some(mut net) = Divided::quorum().await else { return };
    net.servers[2].kill();
    let grant = obtain(&*net.elsewhere, "a").await;
    net.servers[2].start_again();
    net.lines[0].cut();
    let freed =
        eventually("watched on two nodes", async || net.here.watch(&key()).await.ok()).await;
    net.lines[0].heal();

    net.elsewhere.release(&grant, None).await.unwrap();

    soon(freed).await;
}
