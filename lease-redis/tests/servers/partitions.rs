//! Networks that are cut or held between a client and its servers, and heal.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{BootClock, Clock, LeaseState, LockStore, LossCause, Released, StoreErrorKind};
use lease_redis::{RedisQuorum, RedisStore};
use lease_tests::claims::soon;
use lease_tests::line::Line;
use lease_tests::redis::RedisServer;

use crate::setting::{
    beat, claim, eventually, key, lease, lines, locker, obtain, obtain_in_the_end, one, quorum,
    quorum_at, refused, servers, urls_of,
};

const SHORT: Duration = Duration::from_secs(5);

/// Of stores here. It passes for each request that nothing answers, long before a lease runs out.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A client behind lines, and another one with lines of its own, which are whole.
struct Divided {
    servers: Vec<RedisServer>,
    lines: Vec<Line>,
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
        let here = RedisQuorum::builder(urls_of(&lines)).without_quarantine();
        let here = Arc::new(here.with_timeout(TIMEOUT).connect().await.unwrap());
        let elsewhere = Arc::new(quorum(&servers).await);
        Some(Self { servers: servers.into(), lines, here, elsewhere })
    }

    /// One server, and a quorum.
    async fn each() -> impl Iterator<Item = Self> {
        [Self::one_server().await, Self::quorum().await].into_iter().flatten()
    }

    /// The one line, or a majority of them.
    fn majority(&self) -> &[Line] {
        &self.lines[..=self.lines.len() / 2]
    }
}

/// Row "the server, or a majority, is out of reach": no grants; the holder keeps its lease until
/// its deadline, and is told before anybody else can have it (NRL: told 1.5 s after).
async fn the_holder_is_told_before_another_is_granted(net: Divided, part: fn(&Line)) {
    let locker = locker(Arc::clone(&net.here), SHORT);
    let lease = lease(&locker).await;
    let clock = BootClock::new();

    net.majority().iter().for_each(part);
    let error = net.here.obtain(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(lease.is_held(), "it keeps what it has");
    let told = async {
        let lost = lease.lost().await;
        (lost.cause, clock.now())
    };
    let taken = async {
        let next = obtain_in_the_end(&net.elsewhere, "other").await;
        (next.token, clock.now())
    };
    let ((cause, told), (token, taken)) = tokio::join!(told, taken);

    assert_eq!(cause, LossCause::Expired);
    assert!(told < taken, "told {:?} after another was granted it", told.since(taken));
    assert!(token > lease.token(), "{token} after {}", lease.token());
    assert!(!lease.is_held());

    net.lines.iter().for_each(Line::mend);
    let holder = refused(&net.here).await;
    assert_eq!(holder.token, token, "what was held on the way has taken nothing from the next");
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyLost(LossCause::Expired));
}

#[tokio::test]
async fn a_holder_cut_off_from_its_server_is_told_before_another_is_granted() {
    let Some(net) = Divided::one_server().await else { return };
    the_holder_is_told_before_another_is_granted(net, Line::cut).await;
}

#[tokio::test]
async fn a_holder_whose_server_goes_silent_is_told_before_another_is_granted() {
    let Some(net) = Divided::one_server().await else { return };
    the_holder_is_told_before_another_is_granted(net, Line::hold).await;
}

#[tokio::test]
async fn a_holder_cut_off_from_a_majority_is_told_before_another_is_granted() {
    let Some(net) = Divided::quorum().await else { return };
    the_holder_is_told_before_another_is_granted(net, Line::cut).await;
}

#[tokio::test]
async fn a_holder_whose_majority_goes_silent_is_told_before_another_is_granted() {
    let Some(net) = Divided::quorum().await else { return };
    the_holder_is_told_before_another_is_granted(net, Line::hold).await;
}

/// The same row: until its deadline, so one that heals before costs nothing. R3: a renewal that
/// failed once ended all renewals.
async fn a_short_one_is_survived(net: Divided, part: fn(&Line)) {
    let locker = locker(Arc::clone(&net.here), SHORT * 3);
    let lease = lease(&locker).await;
    let mut state = lease.state();

    net.majority().iter().for_each(part);
    let at_risk = state.wait_for(|state| *state == LeaseState::AtRisk);
    soon(at_risk).await.unwrap();
    net.lines.iter().for_each(Line::mend);

    let held = state.wait_for(|state| *state == LeaseState::Held);
    soon(held).await.unwrap();
    assert_eq!(refused(&net.elsewhere).await.token, lease.token());
    assert_eq!(lease.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_lease_survives_a_short_cut() {
    for net in Divided::each().await {
        a_short_one_is_survived(net, Line::cut).await;
    }
}

#[tokio::test]
async fn a_lease_survives_a_short_silence() {
    for net in Divided::each().await {
        a_short_one_is_survived(net, Line::hold).await;
    }
}

/// Two halves of a quorum's clients, each of which reaches another minority: neither is granted
/// anything, and nobody is granted what the other has.
#[tokio::test]
async fn clients_that_reach_different_minorities_hold_nothing_together() {
    let Some(net) = Divided::quorum().await else { return };
    let other_lines = lines(&net.servers).await;
    let other = quorum_at(urls_of(&other_lines)).await;
    let grant = obtain_in_the_end(&net.here, "a").await;
    net.lines[0].cut();
    net.lines[1].cut();
    other_lines[1].cut();
    other_lines[2].cut();

    for _ in 0..5 {
        assert!(net.here.obtain(&claim("b")).await.is_err());
        assert!(other.obtain(&claim("c")).await.is_err());
    }

    net.lines.iter().chain(&other_lines).for_each(Line::mend);
    assert_eq!(refused(&other).await.token, grant.token);
    assert_eq!(beat(&net.here, &grant).await, lease_core::Heartbeat::Extended);
}

/// Row "a minority is out of reach": of the nodes that are left, one alone may have had the key.
#[tokio::test]
async fn a_watch_that_missed_a_node_listens_to_it_once_it_can() {
    let Some(mut net) = Divided::quorum().await else { return };
    net.servers[2].kill();
    let grant = obtain(&*net.elsewhere, "a").await;
    net.servers[2].start_again();
    net.lines[0].cut();
    let freed =
        eventually("watched on two nodes", async || net.here.watch(&key()).await.ok()).await;
    net.lines[0].mend();

    net.elsewhere.release(&grant, None).await.unwrap();

    soon(freed).await;
}
