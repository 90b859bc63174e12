//! Tests conditions one by one. Each test changes a row so that only one condition refuses the request. The
//! control removes this condition.

use std::time::Duration;

use futures_util::future::BoxFuture;
use lease_core::store::{Beat, Heartbeat, LeaseTable, LockStore, Obtained};
use lease_core::{Attributes, GrantId};
use lease_postgres::{PostgresStore, PostgresStoreBuilder};
use lease_test_servers::claims::{claim, obtain};
use lease_test_servers::postgres::PostgresServer;

use crate::control::Probe;
use crate::locks::REQUESTS;
use crate::setting::{TTL, builder, connected, key};

struct Condition {
    of_heartbeat: &'static str,
    of_release: &'static str,
    of_others: &'static str,
    change: &'static str,
    requests: &'static [&'static str],
}

impl Condition {
    fn of(&self, name: &str) -> &'static str {
        match name {
            "heartbeat" => self.of_heartbeat,
            "release" => self.of_release,
            _ => self.of_others,
        }
    }
}

const ALL: [&str; 6] = ["heartbeat", "release", "adopt", "update", "transfer", "delete"];

const CONDITIONS: [Condition; 3] = [
    Condition {
        of_heartbeat: "m.granted = m.nonce AND ",
        of_release: "granted = $2 AND ",
        of_others: "s.granted = $2 AND ",
        change: "granted = gen_random_uuid()",
        requests: &ALL,
    },
    Condition {
        of_heartbeat: "AND m.token = m.asked",
        of_release: "AND token = $3",
        of_others: "AND s.token = $3",
        change: "token = token + 1",
        requests: &ALL,
    },
    Condition {
        of_heartbeat: "AND m.ends > clock_timestamp()",
        of_release: "",
        of_others: "AND s.ends > clock_timestamp()",
        change: "ends = clock_timestamp()",
        // A release also frees a lease that has expired.
        requests: &["heartbeat", "adopt", "update", "transfer", "delete"],
    },
];

/// The result is true if the request was applied to a row that violates the condition.
async fn applied(server: &PostgresServer, is_removed: bool) -> Vec<(String, bool)> {
    let mut applied = Vec::new();
    for condition in &CONDITIONS {
        let requests = REQUESTS.iter().filter(|(name, _)| condition.requests.contains(name));
        for (name, request) in requests {
            let text = condition.of(name);
            let sound = builder(server);
            let builder =
                if is_removed { sound.with_altered_statement(name, text, "") } else { sound };
            let store = connected(builder).await;
            let grant = obtain(&store, &key(), "a", TTL).await;
            server.command(&format!("UPDATE lease SET {}", condition.change));

            let is_applied = request(store, grant).await;

            applied.push((format!("{name}: {text}"), is_applied));
            server.command("TRUNCATE lease");
        }
    }
    applied
}

#[tokio::test]
async fn each_condition_refuses_a_row_by_itself() {
    let Some(server) = PostgresServer::start() else { return };

    let wrong: Vec<_> =
        applied(&server, false).await.into_iter().filter(|(_, applied)| *applied).collect();

    assert!(wrong.is_empty(), "applied: {wrong:?}");
}

#[tokio::test]
async fn request_is_applied_without_its_condition() {
    let Some(server) = PostgresServer::start() else { return };

    let wrong: Vec<_> =
        applied(&server, true).await.into_iter().filter(|(_, applied)| !*applied).collect();

    assert!(wrong.is_empty(), "not needed: {wrong:?}");
}

/// A claim that was granted and released arrives again, after the release of another grant.
pub(crate) fn grants_an_old_claim(
    store: PostgresStore,
    _server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let old = claim(&key(), "a", TTL);
        let Obtained::Granted(grant, _) = store.obtain(&old).await.unwrap() else { return false };
        store.release(&grant, None).await.unwrap();
        let newer = obtain(&store, &key(), "b", TTL).await;
        store.release(&newer, None).await.unwrap();
        matches!(store.obtain(&old).await.unwrap(), Obtained::Granted(..))
    })
}

pub(crate) fn grants_a_held_key(
    store: PostgresStore,
    _server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let released = obtain(&store, &key(), "a", TTL).await;
        store.release(&released, None).await.unwrap();
        obtain(&store, &key(), "b", TTL).await;
        matches!(store.obtain(&claim(&key(), "c", TTL)).await.unwrap(), Obtained::Granted(..))
    })
}

/// A lease that had heartbeats has expired. The first heartbeat of the next lease has a smaller
/// number.
fn counts_heartbeats_on(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let expired = obtain(&store, &key(), "a", TTL).await;
        store.heartbeat(&expired, Beat::new(5)).await.unwrap();
        server.command("UPDATE lease SET ends = clock_timestamp()");
        let next = obtain(&store, &key(), "b", TTL).await;
        store.heartbeat(&next, Beat::new(1)).await.unwrap() != Heartbeat::Extended
    })
}

/// Returns whether the second release restarts the reservation.
fn reserves_again(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let until = || server.command("SELECT until FROM lease");
        let grant = obtain(&store, &key(), "a", TTL).await;
        store.release(&grant, Some(TTL)).await.unwrap();
        let before = until();
        store.release(&grant, Some(TTL)).await.unwrap();
        until() != before
    })
}

fn evicts_an_ended_lease(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let grant = obtain(&store, &key(), "a", TTL).await;
        server.command("UPDATE lease SET ends = clock_timestamp()");
        store.evict(&key(), &GrantId::from(grant.token)).await.unwrap()
    })
}

fn creates_a_record_of_a_held_key(
    store: PostgresStore,
    _server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        obtain(&store, &key(), "a", TTL).await;
        store.create(&key(), &Attributes::new()).await.unwrap()
    })
}

fn purges_a_record(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let grant = obtain(&store, &key(), "a", TTL).await;
        store.release(&grant, None).await.unwrap();
        server.command("UPDATE lease SET kept = true");
        store.purge(Duration::ZERO).await.unwrap() > 0
    })
}

fn purges_a_held_key(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        obtain(&store, &key(), "a", TTL).await;
        store.purge(Duration::ZERO).await.unwrap() > 0
    })
}

/// The name of a statement, alterations of its text, and the probe that must notice them.
type Control = (&'static str, &'static [(&'static str, &'static str)], Probe);

const OPEN: (&str, &str) = ("WHERE NOT EXISTS (", "WHERE true OR NOT EXISTS (");

const CONTROLS: [Control; 9] = [
    ("obtain", &[OPEN, ("AND l.last IS DISTINCT FROM $2", "")], grants_an_old_claim),
    ("obtain", &[("beat = 0,", "beat = l.beat,")], counts_heartbeats_on),
    ("obtain_released", &[("AND ends IS NULL", "")], grants_a_held_key),
    ("obtain_released", &[("AND last IS DISTINCT FROM $2", "")], grants_an_old_claim),
    ("release", &[("AND ends IS NOT NULL", "")], reserves_again),
    ("evict", &[("AND s.ends > clock_timestamp()", "")], evicts_an_ended_lease),
    (
        "create",
        &[OPEN, ("AND (l.ends IS NULL OR l.ends <= clock_timestamp())", "")],
        creates_a_record_of_a_held_key,
    ),
    ("purge", &[("WHERE NOT h.kept\nAND", "WHERE")], purges_a_record),
    (
        "purge",
        &[(
            "AND greatest(h.ends, h.until) < clock_timestamp() - $1 * interval '1 microsecond'",
            "",
        )],
        purges_a_held_key,
    ),
];

#[tokio::test]
async fn conditions_outside_of_grants_are_needed() {
    let Some(server) = PostgresServer::start() else { return };
    for (statement, alterations, probe) in CONTROLS {
        let store = connected(builder(&server)).await;
        assert!(!probe(store, &server).await, "{statement}: {alterations:?}");
        server.command("TRUNCATE lease");
        let alter = |builder: PostgresStoreBuilder, (part, replacement): &(&str, &str)| {
            builder.with_altered_statement(statement, part, replacement)
        };
        let store = connected(alterations.iter().fold(builder(&server), alter)).await;

        assert!(probe(store, &server).await, "{statement}: {alterations:?} is not needed");

        server.command("TRUNCATE lease");
    }
}
