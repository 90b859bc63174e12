//! Nodes that hang or are gone: what a minority of them costs, and what is said once they are
//! the majority.

use std::time::Duration;

use lease_core::{Beat, BootClock, Clock, Heartbeat, LockStore, StoreErrorKind};
use lease_redis::RedisQuorum;
use lease_tests::line::Line;
use lease_tests::redis::RedisServer;

use crate::setting::{
    beat, claim, eventually, has_it, key, lines, obtain, obtain_in_the_end, refused, servers, text,
    urls_of,
};

/// Of each node. No round comes near it, so that waiting for it would show.
const TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// What is said of a node that does not answer: on the connection that is there, and, after a
/// long silence, of the attempt to make another.
const SILENT: [&str; 2] = ["did not answer within 2s", "timed out"];

/// What is said of one that is gone, with what the system says.
const BROKEN: [&str; 3] = ["broken pipe", "onnection reset", "closed"];

/// What becomes of a node.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    /// It accepts connections, and answers nothing.
    Hung,
    /// It is gone, and what is in front of it closes connections.
    Killed,
    /// It is gone, and so is what was in front of it: connecting is refused.
    Gone,
    /// Nothing arrives, and nothing is refused.
    OutOfReach,
}

/// Five nodes, each behind a line.
struct Five {
    servers: [RedisServer; 5],
    lines: Vec<Option<Line>>,
    store: RedisQuorum,
}

impl Five {
    async fn start(timeout: Duration) -> Option<Self> {
        let servers = servers()?;
        let lines = lines(&servers).await;
        let builder = RedisQuorum::builder(urls_of(&lines)).without_quarantine();
        let store = builder.with_timeout(timeout).connect().await.unwrap();
        Some(Self { servers, lines: lines.into_iter().map(Some).collect(), store })
    }

    fn befall(&mut self, place: usize, trouble: Trouble) {
        match trouble {
            Trouble::Hung => self.servers[place].hang(),
            Trouble::Killed => self.servers[place].kill(),
            Trouble::Gone => {
                self.servers[place].kill();
                self.lines[place] = None;
            }
            Trouble::OutOfReach => self.lines[place].as_ref().unwrap().hold(),
        }
    }

    fn mend(&mut self, place: usize, trouble: Trouble) {
        match trouble {
            Trouble::Hung => self.servers[place].go_on(),
            Trouble::Killed => self.servers[place].start_again(),
            Trouble::OutOfReach => self.lines[place].as_ref().unwrap().mend(),
            Trouble::Gone => panic!("what was in front of it had another address"),
        }
    }
}

/// Row "a minority hangs or is gone": nothing, and nothing waits. RSL: one hung node blocked all.
async fn nothing_waits_for(trouble: Trouble) {
    let Some(mut nodes) = Five::start(TIMEOUT).await else { return };
    let held = obtain(&nodes.store, "a").await;
    let mut last = held.token;
    for (number, place) in [3, 0].into_iter().enumerate() {
        nodes.befall(place, trouble);
        let clock = BootClock::new();
        let began = clock.now();

        // Ten rounds in less than one time-out: none of them waited.
        assert_eq!(refused(&nodes.store).await.token, held.token);
        for round in 0..10 {
            let beat = Beat::new(10 * number as u64 + round + 1);
            assert_eq!(nodes.store.heartbeat(&held, beat).await.unwrap(), Heartbeat::Extended);
            let other = lease_tests::claims::fresh_key("other");
            let grant = lease_tests::claims::obtain(&nodes.store, &other, "a", TIMEOUT * 10).await;
            assert_eq!(
                nodes.store.heartbeat(&grant, Beat::new(1)).await.unwrap(),
                Heartbeat::Extended
            );
            nodes.store.release(&grant, None).await.unwrap();
        }

        let took = clock.now().since(began);
        assert!(took < TIMEOUT, "{took:?} with {} {trouble:?}", number + 1);
    }
    nodes.store.release(&held, None).await.unwrap();
    last = last.max(obtain(&nodes.store, "b").await.token);
    assert!(last > held.token);
}

#[tokio::test]
async fn a_hung_minority_is_not_waited_for() {
    nothing_waits_for(Trouble::Hung).await;
}

#[tokio::test]
async fn a_killed_minority_is_not_waited_for() {
    nothing_waits_for(Trouble::Killed).await;
}

#[tokio::test]
async fn a_minority_that_refuses_connections_is_not_waited_for() {
    nothing_waits_for(Trouble::Gone).await;
}

#[tokio::test]
async fn a_minority_out_of_reach_is_not_waited_for() {
    nothing_waits_for(Trouble::OutOfReach).await;
}

/// Row "the server, or a majority, is out of reach": no grants, said in time and with a reason;
/// afterwards all goes on, with the store that was there before.
async fn a_majority_is_missed_and_found_again(trouble: Trouble, reasons: &[&str]) {
    let limit = Duration::from_secs(2);
    let Some(mut nodes) = Five::start(limit).await else { return };
    let held = obtain(&nodes.store, "a").await;
    for place in 0..3 {
        nodes.befall(place, trouble);
    }
    let clock = BootClock::new();

    for attempt in 0..2 {
        let began = clock.now();
        let no_grant = nodes.store.obtain(&claim("b")).await.unwrap_err();
        let no_beat = nodes.store.heartbeat(&held, Beat::new(attempt + 1)).await.unwrap_err();
        let no_holder = nodes.store.holder(&key()).await.unwrap_err();

        // Three calls, each with a time-out of its own. What they say shows that it was kept to; this
        // shows that nobody waited for the nodes, also on a machine that is busy.
        let took = clock.now().since(began);
        assert!(took < limit * 20, "{took:?}");
        for error in [no_grant, no_beat, no_holder] {
            let said = text(&error);
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{said}");
            assert!(said.contains("2 of 5 nodes took part, and 3 are needed"), "{said}");
            assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
        }
    }

    for place in 0..3 {
        nodes.mend(place, trouble);
    }
    let beat = beat(&nodes.store, &held).await;
    assert_eq!(beat, Heartbeat::Extended, "the holder's lease was not lost");
    nodes.store.release(&held, None).await.unwrap();
    let next = obtain_in_the_end(&nodes.store, "b").await;
    assert!(next.token > held.token, "{} after {}", next.token, held.token);
    let mut number = 0;
    eventually("all five take part again", async || {
        number += 1;
        nodes.store.heartbeat(&next, Beat::new(number)).await.ok()?;
        nodes.servers.iter().all(has_it).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hung_majority_is_said_in_time_and_found_again() {
    a_majority_is_missed_and_found_again(Trouble::Hung, &SILENT).await;
}

#[tokio::test]
async fn a_killed_majority_is_said_in_time_and_found_again() {
    a_majority_is_missed_and_found_again(Trouble::Killed, &BROKEN).await;
}

#[tokio::test]
async fn a_majority_out_of_reach_is_said_in_time_and_found_again() {
    a_majority_is_missed_and_found_again(Trouble::OutOfReach, &SILENT).await;
}
