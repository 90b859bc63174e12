//! Nodes that hang or have stopped. Rows are those of the README's table *What happens when*.

use std::time::Duration;

use lease_core::store::{Beat, BootClock, Clock, Heartbeat, LockStore};
use lease_core::{StoreError, StoreErrorKind};
use lease_redis::RedisQuorum;
use lease_test_servers::claims;
use lease_test_servers::proxy::Link;
use lease_test_servers::redis::RedisServer;

use crate::setting::{
    beat, claim, eventually, has_lease, in_one_of_five, key, lines, obtain, obtain_eventually,
    obtain_on_all, refused, servers, text, urls_of,
};

/// Even one wait for a node exceeds the limit of a test.
const TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// The client opens a new connection after a long silence.
const SILENT: [&str; 2] = ["did not answer within 2s", "timed out"];

const BROKEN: [&str; 3] = ["broken pipe", "onnection reset", "closed"];

#[derive(Debug, Clone, Copy)]
enum NodeFault {
    Hung,
    /// The proxy of the node accepts connections, and closes them.
    Killed,
    /// Connections are refused.
    Gone,
    /// Attempts to connect time out.
    Unreachable,
}

struct Five {
    servers: [RedisServer; 5],
    lines: Vec<Option<Link>>,
    store: RedisQuorum,
}

impl Five {
    async fn start(timeout: Duration) -> Option<Self> {
        let servers = servers()?;
        let lines = lines(&servers).await;
        let builder = RedisQuorum::builder(urls_of(&lines)).without_rejoin_delay();
        let store = builder.with_timeout(timeout).connect().await.unwrap();
        Some(Self { servers, lines: lines.into_iter().map(Some).collect(), store })
    }

    fn apply(&mut self, place: usize, fault: NodeFault) {
        match fault {
            NodeFault::Hung => self.servers[place].hang(),
            NodeFault::Killed => self.servers[place].kill(),
            NodeFault::Gone => {
                self.servers[place].kill();
                self.lines[place] = None;
            }
            NodeFault::Unreachable => self.lines[place].as_ref().unwrap().hold(),
        }
    }

    fn repair(&mut self, place: usize, fault: NodeFault) {
        match fault {
            NodeFault::Hung => self.servers[place].go_on(),
            NodeFault::Killed => self.servers[place].start_again(),
            NodeFault::Unreachable => self.lines[place].as_ref().unwrap().heal(),
            NodeFault::Gone => panic!("a new proxy would have another address"),
        }
    }
}

/// Row "a minority hangs or is gone". In rslock, one hung node blocked every request.
async fn minority_causes_no_wait(fault: NodeFault) {
    in_one_of_five(async || without_a_minority(fault).await).await;
}

async fn without_a_minority(fault: NodeFault) -> Result<(), StoreError> {
    let Some(mut nodes) = Five::start(TIMEOUT).await else { return Ok(()) };
    let held = obtain(&nodes.store, "a").await;
    let mut last = held.token;
    for (number, place) in [3, 0].into_iter().enumerate() {
        nodes.apply(place, fault);
        let clock = BootClock::new();
        let began = clock.now();

        // Ten rounds take less than one timeout, so no round has waited for a node.
        assert_eq!(refused(&nodes.store).await.token, Some(held.token));
        for round in 0..10 {
            let beat = Beat::new(10 * number as u64 + round + 1);
            assert_eq!(nodes.store.heartbeat(&held, beat).await?, Heartbeat::Extended);
            let other = claims::claim(&claims::fresh_key("other"), "a", TIMEOUT * 10);
            let (grant, _) = claims::granted(nodes.store.obtain(&other).await?);
            assert_eq!(nodes.store.heartbeat(&grant, Beat::new(1)).await?, Heartbeat::Extended);
            nodes.store.release(&grant, None).await?;
        }

        let took = clock.now().since(began);
        assert!(took < TIMEOUT, "{took:?} with {} {fault:?}", number + 1);
    }
    nodes.store.release(&held, None).await?;
    last = last.max(obtain(&nodes.store, "b").await.token);
    assert!(last > held.token);
    Ok(())
}

#[tokio::test]
async fn hung_minority_causes_no_wait() {
    minority_causes_no_wait(NodeFault::Hung).await;
}

#[tokio::test]
async fn killed_minority_causes_no_wait() {
    minority_causes_no_wait(NodeFault::Killed).await;
}

#[tokio::test]
async fn minority_that_refuses_connections_causes_no_wait() {
    minority_causes_no_wait(NodeFault::Gone).await;
}

#[tokio::test]
async fn unreachable_minority_causes_no_wait() {
    minority_causes_no_wait(NodeFault::Unreachable).await;
}

/// Row "the server, or a majority, is unreachable".
async fn majority_is_reported_and_recovers(fault: NodeFault, reasons: &[&str]) {
    let limit = Duration::from_secs(2);
    let Some(mut nodes) = Five::start(limit).await else { return };
    // A new lease may be only on the nodes that fail.
    let held = obtain_on_all(&nodes.store, &nodes.servers).await;
    for place in 0..3 {
        nodes.apply(place, fault);
    }
    let clock = BootClock::new();

    for attempt in 0..2 {
        let began = clock.now();
        let no_grant = nodes.store.obtain(&claim("b")).await.unwrap_err();
        let no_beat = nodes.store.heartbeat(&held, Beat::new(attempt + 1)).await.unwrap_err();
        let no_holder = nodes.store.holder(&key()).await.unwrap_err();

        // The limit is generous, since the machine may be busy. Without its time-out, a call to hung nodes
        // would exceed this limit.
        let took = clock.now().since(began);
        assert!(took < limit * 20, "{took:?}");
        for error in [no_grant, no_beat, no_holder] {
            let message = text(&error);
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{message}");
            // By the third failure, up to two nodes have answered.
            let too_few = |count| {
                message.contains(&format!("{count} of 5 nodes took part, and 3 are needed"))
            };
            assert!((0..=2).any(too_few), "{message}");
            assert!(reasons.iter().any(|reason| message.contains(reason)), "{message}");
        }
    }

    for place in 0..3 {
        nodes.repair(place, fault);
    }
    let beat = beat(&nodes.store, &held).await;
    assert_eq!(beat, Heartbeat::Extended, "the holder has lost its lease");
    nodes.store.release(&held, None).await.unwrap();
    let next = obtain_eventually(&nodes.store, "b").await;
    assert!(next.token > held.token, "{} after {}", next.token, held.token);
    let mut number = 0;
    eventually("all five take part again", async || {
        number += 1;
        nodes.store.heartbeat(&next, Beat::new(number)).await.ok()?;
        nodes.servers.iter().all(has_lease).then_some(())
    })
    .await;
}

#[tokio::test]
async fn hung_majority_is_reported_in_time_and_recovers() {
    majority_is_reported_and_recovers(NodeFault::Hung, &SILENT).await;
}

#[tokio::test]
async fn killed_majority_is_reported_in_time_and_recovers() {
    majority_is_reported_and_recovers(NodeFault::Killed, &BROKEN).await;
}

#[tokio::test]
async fn unreachable_majority_is_reported_in_time_and_recovers() {
    majority_is_reported_and_recovers(NodeFault::Unreachable, &SILENT).await;
}
