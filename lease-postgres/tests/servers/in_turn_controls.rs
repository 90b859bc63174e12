//! Breaks each condition and each lock of a queue, and finds a broken promise.

use futures_util::future::BoxFuture;
use lease_core::store::{Claim, Enqueued, InTurn, LeaseTable, LockStore, Obtained};
use lease_postgres::{PostgresStore, PostgresStoreBuilder};
use lease_test_servers::claims::{claim, granted, obtain, soon};
use lease_test_servers::postgres::PostgresServer;

use crate::control::{Control, assert_each_is_needed};
use crate::in_turn::{holder, is_held_by, queue, queued};
use crate::setting::{TTL, builder, connected, key, session, waiting_for_locks};

/// Another store has the waiters, so that the releasing store does not know of the queue.
pub(crate) fn frees_a_queued_key(
    store: PostgresStore,
    server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let other = connected(builder(server)).await;
        let (held, _) = queued(&other, &["b"]).await;
        store.release(&held, None).await.unwrap();
        !is_held_by(&store, "b").await
    })
}

fn grants_out_of_turn(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, _) = queued(&store, &["b", "c"]).await;
        store.release(&held, None).await.unwrap();
        !is_held_by(&store, "b").await
    })
}

fn grants_an_expired_place(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, _) = queued(&store, &["b", "c"]).await;
        server.command("UPDATE lease SET queue = jsonb_set(queue, '{0,until}', '0')");
        store.release(&held, None).await.unwrap();
        !is_held_by(&store, "c").await
    })
}

fn keeps_a_claim_that_left(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, claims) = queued(&store, &["b", "c"]).await;
        store.leave(&claims[0]).await.unwrap();
        store.release(&held, None).await.unwrap();
        !is_held_by(&store, "c").await
    })
}

fn frees_the_key_of_another(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (_held, claims) = queued(&store, &["b"]).await;
        store.leave(&claims[0]).await.unwrap();
        !is_held_by(&store, "a").await
    })
}

fn frees_a_later_token(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, _) = queued(&store, &["b"]).await;
        server.command("UPDATE lease SET token = token + 1");
        store.release(&held, None).await.unwrap();
        !is_held_by(&store, "a").await
    })
}

/// A duplicate of a release arrives without the reservation.
fn ends_a_reservation(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, _) = queued(&store, &["b"]).await;
        store.release(&held, Some(TTL)).await.unwrap();
        store.release(&held, None).await.unwrap();
        holder(&store).await.is_some() || queue(server) != "1"
    })
}

fn hands_a_held_key_on(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let former = obtain(&store, &key(), "x", TTL).await;
        store.release(&former, None).await.unwrap();
        queued(&store, &["b"]).await;
        store.release(&former, None).await.unwrap();
        !is_held_by(&store, "a").await
    })
}

fn keeps_the_place_of_a_holder(
    store: PostgresStore,
    server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, _) = queued(&store, &["b", "c"]).await;
        store.release(&held, None).await.unwrap();
        queue(server) != "1"
    })
}

fn renewal_revives_another_place(
    store: PostgresStore,
    server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (_held, claims) = queued(&store, &["b", "c"]).await;
        server.command(
            "UPDATE lease SET queue = jsonb_set(queue, '{0,until}', '0'), ends = clock_timestamp()",
        );
        store.renew(&claims[1]).await.unwrap();
        !is_held_by(&store, "c").await
    })
}

/// The claim was granted before, and its lease has expired.
fn grants_a_spent_claim(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let spent = claim(&key(), "a", TTL);
        granted(store.obtain(&spent).await.unwrap());
        server.command("UPDATE lease SET ends = clock_timestamp()");
        store.enqueue(&spent.repeated()).await.unwrap() != Enqueued::Gone
    })
}

/// As before, but the key was granted to another lessee since.
fn grants_a_released_claim(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let spent = claim(&key(), "a", TTL);
        let (grant, _) = granted(store.obtain(&spent).await.unwrap());
        store.release(&grant, None).await.unwrap();
        let other = obtain(&store, &key(), "b", TTL).await;
        store.release(&other, None).await.unwrap();
        store.enqueue(&spent.repeated()).await.unwrap() != Enqueued::Gone
    })
}

fn queues_under_a_session(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        obtain(&store, &key(), "a", TTL).await;
        server.command("UPDATE lease SET ends = 'infinity', parent = 'worker', parent_token = 7");
        let answer = store.enqueue(&claim(&key(), "b", TTL)).await.unwrap();
        answer != Enqueued::NoQueue || queue(server) != "0"
    })
}

fn grants_a_reserved_key(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let held = obtain(&store, &key(), "a", TTL).await;
        store.release(&held, Some(TTL)).await.unwrap();
        let answer = store.enqueue(&claim(&key(), "b", TTL)).await.unwrap();
        !matches!(answer, Enqueued::Queued(_))
    })
}

fn refuses_the_next_lessee(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let held = obtain(&store, &key(), "a", TTL).await;
        let _ = store.transfer(&held, &"b".parse().unwrap(), TTL).await.unwrap();
        let answer = store.enqueue(&claim(&key(), "b", TTL)).await.unwrap();
        !matches!(answer, Enqueued::Granted(..))
    })
}

fn lets_a_renewal_join(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        obtain(&store, &key(), "a", TTL).await;
        store.renew(&claim(&key(), "b", TTL)).await.unwrap();
        queue(server) != "0"
    })
}

fn moves_to_the_end(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, claims) = queued(&store, &["b", "c"]).await;
        store.renew(&claims[0]).await.unwrap();
        store.release(&held, None).await.unwrap();
        !is_held_by(&store, "b").await
    })
}

fn forgets_the_request(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, claims) = queued(&store, &["b"]).await;
        store.renew(&claims[0].clone().repeated().repeated()).await.unwrap();
        store.enqueue(&claims[0]).await.unwrap();
        store.release(&held, None).await.unwrap();
        server.command("SELECT request FROM lease") != "3"
    })
}

/// A late copy of a claim arrives after the key was freed again.
async fn grants_a_copy(store: &PostgresStore, copied: &Claim) -> bool {
    matches!(store.obtain(copied).await.unwrap(), Obtained::Granted(..))
}

/// The claims of `b` and `c` are queued. The lease of the holder expires, `c` leaves, and `b` is granted the key.
fn expiry_forgets_a_release(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let released = claim(&key(), "x", TTL);
        let (grant, _) = granted(store.obtain(&released).await.unwrap());
        store.release(&grant, None).await.unwrap();
        let (_expired, claims) = queued(&store, &["b", "c"]).await;
        server.command("UPDATE lease SET ends = clock_timestamp()");
        store.leave(&claims[1]).await.unwrap();
        store.leave(&claims[0]).await.unwrap();
        grants_a_copy(&store, &released).await
    })
}

fn hand_over_forgets_a_release(
    store: PostgresStore,
    _server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let released = claim(&key(), "a", TTL);
        let (grant, _) = granted(store.obtain(&released).await.unwrap());
        let waiting = claim(&key(), "b", TTL);
        store.enqueue(&waiting).await.unwrap();
        store.release(&grant, None).await.unwrap();
        store.leave(&waiting).await.unwrap();
        grants_a_copy(&store, &released).await
    })
}

fn end_of_reservation_forgets_a_release(
    store: PostgresStore,
    server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let released = claim(&key(), "a", TTL);
        let (grant, _) = granted(store.obtain(&released).await.unwrap());
        let waiting = [claim(&key(), "b", TTL), claim(&key(), "c", TTL)];
        for waiting in &waiting {
            store.enqueue(waiting).await.unwrap();
        }
        store.release(&grant, Some(TTL)).await.unwrap();
        server.command("UPDATE lease SET until = clock_timestamp()");
        store.leave(&waiting[1]).await.unwrap();
        store.leave(&waiting[0]).await.unwrap();
        grants_a_copy(&store, &released).await
    })
}

/// The reply to the claim was lost, and the locker waits in the queue.
fn refuses_a_granted_claim(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let claim = claim(&key(), "a", TTL);
        assert!(matches!(store.obtain(&claim).await.unwrap(), Obtained::Granted(..)));
        !matches!(store.enqueue(&claim).await.unwrap(), Enqueued::Granted(..))
    })
}

const UNEXPIRED: &str = "AND (q.item ->> 'until')::bigint > extract(epoch FROM h.now) * 1000000";

const CONTROLS: [Control; 23] = [
    ("place", "WHEN h.granted = $2 AND h.ends > h.now THEN 'again'", "", refuses_a_granted_claim),
    ("release", "AND (queue IS NULL OR $4 IS NOT NULL)", "", frees_a_queued_key),
    ("hand_on", "ORDER BY p.place LIMIT 1", "ORDER BY p.place DESC LIMIT 1", grants_out_of_turn),
    ("hand_on", UNEXPIRED, "", grants_an_expired_place),
    ("hand_on", "WHERE q.item ->> 'nonce' <> $2::text", "WHERE true", keeps_a_claim_that_left),
    ("hand_on", "s.granted = $2 AND", "", frees_the_key_of_another),
    ("hand_on", "(s.token = $3 OR $3 IS NULL)", "true", frees_a_later_token),
    ("hand_on", "AND s.ends IS NOT NULL", "", ends_a_reservation),
    ("hand_on", "AND (h.until IS NULL OR h.until <= h.now)", "", ends_a_reservation),
    ("hand_on", "(h.ends IS NULL OR h.ends <= h.now) AND", "", hands_a_held_key_on),
    (
        "hand_on",
        "WHERE p.item IS DISTINCT FROM (SELECT item FROM first)",
        "",
        keeps_the_place_of_a_holder,
    ),
    (
        "hand_on",
        "CASE WHEN h.is_holder OR h.ends IS NULL",
        "CASE WHEN true",
        expiry_forgets_a_release,
    ),
    ("hand_on", "CASE WHEN h.is_holder OR", "CASE WHEN", hand_over_forgets_a_release),
    (
        "hand_on",
        "CASE WHEN h.is_holder OR h.ends IS NULL",
        "CASE WHEN h.is_holder",
        end_of_reservation_forgets_a_release,
    ),
    ("place", UNEXPIRED, "", renewal_revives_another_place),
    ("place", "s.granted = $2 OR", "", grants_a_spent_claim),
    ("place", "s.last = $2 OR", "", grants_a_released_claim),
    ("place", "OR s.ends = 'infinity'", "", queues_under_a_session),
    (
        "place",
        "(h.until IS NULL OR h.until <= h.now OR h.only_for = c.item ->> 'lessee')",
        "true",
        grants_a_reserved_key,
    ),
    ("place", "OR h.only_for = c.item ->> 'lessee'", "", refuses_the_next_lessee),
    ("place", "(o.place IS NOT NULL OR $7 = 1)", "true", lets_a_renewal_join),
    (
        "place",
        "coalesce(o.place, 9223372036854775807), o.item",
        "9223372036854775807, o.item",
        moves_to_the_end,
    ),
    ("place", "greatest($5, max((q.item ->> 'request')::bigint))", "$5", forgets_the_request),
];

fn takes_the_key_of_another(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, _) = queued(&store, &["b"]).await;
        server.command("UPDATE lease SET granted = gen_random_uuid()");
        store.release(&held, None).await.unwrap();
        !is_held_by(&store, "a").await
    })
}

fn grants_the_claim_of_the_holder(
    store: PostgresStore,
    server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let (held, _) = queued(&store, &["b", "c"]).await;
        server.command("UPDATE lease SET queue = jsonb_set(queue, '{0,nonce}', to_jsonb(granted))");
        store.release(&held, None).await.unwrap();
        !is_held_by(&store, "c").await
    })
}

/// Each condition of the statement that comes before `hand_on`.
const CONTROLS_OF_THE_SHORT_STATEMENT: [Control; 7] = [
    ("hand_to_first", "AND h.granted = $2", "", takes_the_key_of_another),
    ("hand_to_first", "AND h.token = $3", "", frees_a_later_token),
    ("hand_to_first", "AND h.ends IS NOT NULL", "", ends_a_reservation),
    ("hand_to_first", "@.nonce != $own && ", "", grants_the_claim_of_the_holder),
    ("hand_to_first", " && @.until > $now", "", grants_an_expired_place),
    ("hand_to_first", "last = l.granted", "last = l.last", hand_over_forgets_a_release),
    ("hand_to_first", "h.places - 0", "h.places", keeps_the_place_of_a_holder),
];

/// The statement that comes before `hand_on` grants nothing, so that `hand_on` decides.
fn without_the_short_statement(server: &PostgresServer) -> PostgresStoreBuilder {
    builder(server).with_altered_statement("hand_to_first", "h.places <> '[]'", "false")
}

#[tokio::test]
async fn each_condition_of_a_queue_is_needed() {
    let Some(server) = PostgresServer::start() else { return };
    assert_each_is_needed(&CONTROLS, &server, || without_the_short_statement(&server)).await;
}

#[tokio::test]
async fn each_condition_of_the_short_statement_is_needed() {
    let Some(server) = PostgresServer::start() else { return };
    assert_each_is_needed(&CONTROLS_OF_THE_SHORT_STATEMENT, &server, || builder(&server)).await;
}

/// While a request waits for the row, another session puts the claim of `b` into the queue. The request is a
/// release for `hand_on`, and an enqueue for `place`. Returns whether the claim was lost.
async fn loses_a_claim(
    statement: &'static str,
    builder: PostgresStoreBuilder,
    server: &PostgresServer,
) -> bool {
    let store = connected(builder).await;
    // From now on, the store knows of a queue.
    let (held, claims) = queued(&store, &["b"]).await;
    let place = server.command("SELECT queue FROM lease");
    store.leave(&claims[0]).await.unwrap();
    let (other, watching) = (session(server).await, session(server).await);
    other.batch_execute(&format!("BEGIN; UPDATE lease SET queue = '{place}'")).await.unwrap();
    let requesting = store.clone();
    let waiting = tokio::spawn(async move {
        match statement {
            "hand_on" => requesting.release(&held, None).await.unwrap(),
            _ => drop(requesting.enqueue(&claim(&key(), "c", TTL)).await.unwrap()),
        }
    });
    waiting_for_locks(&watching, 1).await;

    other.batch_execute("COMMIT").await.unwrap();
    soon(waiting).await.unwrap();

    let is_lost = match statement {
        "hand_on" => !is_held_by(&store, "b").await,
        _ => queue(server) != "2",
    };
    server.command("TRUNCATE lease");
    is_lost
}

#[tokio::test]
async fn claim_that_joins_during_a_wait_is_not_lost() {
    let Some(server) = PostgresServer::start() else { return };
    for statement in ["hand_on", "place"] {
        let sound = without_the_short_statement(&server);
        let altered = sound.clone().with_altered_statement(statement, "FOR UPDATE OF h", "");

        assert!(!loses_a_claim(statement, sound, &server).await, "{statement}");
        assert!(loses_a_claim(statement, altered, &server).await, "{statement} needs no lock");
    }
}

/// While a release waits for the row, another session adds the claim of `c` behind the claim of `b`. Returns whether
/// the claim of `c` was lost.
async fn loses_a_later_claim(builder: PostgresStoreBuilder, server: &PostgresServer) -> bool {
    let store = connected(builder).await;
    let (held, claims) = queued(&store, &["b", "c"]).await;
    let both = server.command("SELECT queue FROM lease");
    store.leave(&claims[1]).await.unwrap();
    let (other, watching) = (session(server).await, session(server).await);
    other.batch_execute(&format!("BEGIN; UPDATE lease SET queue = '{both}'")).await.unwrap();
    let releasing = store.clone();
    let waiting = tokio::spawn(async move { releasing.release(&held, None).await.unwrap() });
    waiting_for_locks(&watching, 1).await;

    other.batch_execute("COMMIT").await.unwrap();
    soon(waiting).await.unwrap();

    let is_lost = queue(server) != "1";
    server.command("TRUNCATE lease");
    is_lost
}

#[tokio::test]
async fn claim_that_joins_while_the_short_statement_waits_is_not_lost() {
    let Some(server) = PostgresServer::start() else { return };
    let sound = builder(&server);
    let altered = sound.clone().with_altered_statement("hand_to_first", "FOR UPDATE OF h", "");

    assert!(!loses_a_later_claim(sound, &server).await);
    assert!(loses_a_later_claim(altered, &server).await, "the statement needs no lock");
}
