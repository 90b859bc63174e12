//! Tokens and nonces after events that the conformance tests cannot cause.

use std::time::Duration;

use lease_core::store::{Grant, LockStore, Obtained};
use lease_core::{Attributes, FencingToken};
use lease_postgres::PostgresStoreBuilder;
use lease_test_servers::claims::{claim, granted, held, obtain};
use lease_test_servers::postgres::PostgresServer;

use crate::locks::{REQUESTS, Request};
use crate::setting::{TTL, builder, connected, key};

/// Simulates a server whose clock was set back by an hour since the last grant.
const FUTURE: &str = "UPDATE lease SET token = token + 3600000000";

/// Obtains the key again, and adopts it, on a server whose clock was set back. Returns the tokens.
async fn tokens_after_a_clock_step(
    builder: PostgresStoreBuilder,
    server: &PostgresServer,
) -> [FencingToken; 3] {
    let store = connected(builder).await;
    let first = obtain(&store, &key(), "a", TTL).await;
    store.release(&first, None).await.unwrap();
    server.command(FUTURE);
    let last: u64 = server.command("SELECT token FROM lease").parse().unwrap();
    let again = obtain(&store, &key(), "b", TTL).await;
    server.command(FUTURE);
    let handed = Grant::clone(&again);
    let token: u64 = server.command("SELECT token FROM lease").parse().unwrap();
    let mut handed = handed;
    handed.token = FencingToken::new(token).unwrap();
    let adopted = store.adopt(&handed, &claim(&key(), "c", TTL)).await.unwrap();
    let adopted = granted(adopted).0;
    server.command("TRUNCATE lease");
    assert!(adopted.token != handed.token);
    [FencingToken::new(last).unwrap(), again.token, adopted.token]
}

#[tokio::test]
async fn tokens_grow_when_the_clock_was_set_back() {
    let Some(server) = PostgresServer::start() else { return };

    let [last, again, adopted] = tokens_after_a_clock_step(builder(&server), &server).await;

    assert!(last < again, "{again} after {last}");
    assert!(again < adopted, "{adopted} after {again}");
}

#[tokio::test]
async fn token_from_the_time_alone_is_noticed() {
    let Some(server) = PostgresServer::start() else { return };
    let altered = builder(&server)
        .with_altered_statement("obtain", "coalesce(l.token, 0) + 1", "0")
        .with_altered_statement("obtain_released", "token + 1", "0");

    let [last, again, _] = tokens_after_a_clock_step(altered, &server).await;

    assert!(again < last, "the counter is not needed");
}

#[tokio::test]
async fn first_token_is_the_servers_time() {
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(builder(&server)).await;
    let time = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let before: u64 = server.command(time).parse().unwrap();

    let grant = obtain(&store, &key(), "a", TTL).await;

    let after: u64 = server.command(time).parse().unwrap();
    assert!((before..=after).contains(&grant.token.get()), "{grant:?}");
}

/// A claim arrives again after the release of its grant, and after the expiry of the next grant.
/// `attributes` belong to the next claim.
async fn late_claim_is_granted(
    builder: PostgresStoreBuilder,
    server: &PostgresServer,
    attributes: Attributes,
) -> bool {
    let store = connected(builder).await;
    let late = claim(&key(), "a", TTL);
    let first = granted(store.obtain(&late).await.unwrap()).0;
    store.release(&first, None).await.unwrap();
    let next = claim(&key(), "b", TTL).with_attributes(attributes);
    granted(store.obtain(&next).await.unwrap());
    server.command("UPDATE lease SET ends = clock_timestamp() - interval '1 second'");

    let answer = store.obtain(&late.repeated()).await.unwrap();

    server.command("TRUNCATE lease");
    matches!(answer, Obtained::Granted(..))
}

#[tokio::test]
async fn claim_from_before_the_last_grant_is_refused() {
    let Some(server) = PostgresServer::start() else { return };

    for attributes in [Attributes::new(), some_attributes()] {
        assert!(!late_claim_is_granted(builder(&server), &server, attributes).await);
    }
}

#[tokio::test]
async fn row_without_the_released_nonce_is_noticed() {
    let Some(server) = PostgresServer::start() else { return };
    let part = "last = CASE WHEN l.ends IS NULL THEN coalesce(l.granted, l.last) ELSE l.last END";
    let altered = builder(&server).with_altered_statement("obtain", part, "last = NULL");
    // A claim with attributes always uses this statement.
    assert!(late_claim_is_granted(altered, &server, some_attributes()).await);

    let (name, part) = ("obtain_released", "last = granted,");
    let altered = builder(&server).with_altered_statement(name, part, "last = NULL,");
    assert!(late_claim_is_granted(altered, &server, Attributes::new()).await);
}

fn some_attributes() -> Attributes {
    Attributes::from([("step".to_owned(), "1".into())])
}

#[tokio::test]
async fn claim_of_a_handed_over_grant_is_refused() {
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(builder(&server)).await;
    let late = claim(&key(), "a", TTL);
    let handed = granted(store.obtain(&late).await.unwrap()).0;
    let adopted = granted(store.adopt(&handed, &claim(&key(), "b", TTL)).await.unwrap()).0;
    server.command("UPDATE lease SET ends = clock_timestamp() - interval '1 second'");

    let holder = held(store.obtain(&late.repeated()).await.unwrap());

    assert_eq!(holder.token, Some(adopted.token));
    assert_eq!(holder.expires_in, Some(Duration::ZERO));
}

#[tokio::test]
async fn second_release_does_not_end_the_reservation() {
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(builder(&server)).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    store.release(&grant, Some(TTL)).await.unwrap();

    store.release(&grant, None).await.unwrap();

    held(store.obtain(&claim(&key(), "b", TTL)).await.unwrap());
}

/// The same claim was granted the key again under a larger token, for example after the row was lost.
async fn applied_under_an_earlier_token(
    builder: PostgresStoreBuilder,
    server: &PostgresServer,
    request: Request,
) -> bool {
    let store = connected(builder).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    server.command("UPDATE lease SET token = token + 1");

    let applied = request(store, grant).await;

    server.command("TRUNCATE lease");
    applied
}

#[tokio::test]
async fn request_under_an_earlier_token_is_refused() {
    let Some(server) = PostgresServer::start() else { return };
    for (name, request) in REQUESTS {
        let applied = applied_under_an_earlier_token(builder(&server), &server, request).await;

        assert!(!applied, "{name} was applied under an earlier token");
    }
}

#[tokio::test]
async fn statement_that_ignores_the_token_is_noticed() {
    let Some(server) = PostgresServer::start() else { return };
    for (name, request) in REQUESTS {
        let part = match name {
            "heartbeat" => "AND m.token = m.asked",
            "release" => "AND token = $3",
            _ => "AND s.token = $3",
        };
        let altered = builder(&server).with_altered_statement(name, part, "");

        let applied = applied_under_an_earlier_token(altered, &server, request).await;

        assert!(applied, "{name} needs no token: remove it, or correct this test");
    }
}
