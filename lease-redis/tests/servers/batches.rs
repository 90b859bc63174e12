//! Simultaneous claims and releases share one write.

use std::time::Duration;

use futures_util::future::join_all;
use lease_core::store::{Beat, Claim, Grant, Heartbeat, LockStore, Nonce, Obtained};
use lease_core::{StoreError, StoreErrorKind};
use lease_redis::RedisStore;
use lease_test_servers::claims::{self, soon};
use lease_test_servers::proxy::{Fault, Proxy, Wire};
use lease_test_servers::redis::RedisServer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;

use crate::setting::{TTL, eventually, obtain_eventually, one, one_at, servers, text};

pub(crate) struct Monitor(Lines<BufReader<TcpStream>>);

impl Monitor {
    pub(crate) async fn start(server: &RedisServer) -> Self {
        let mut connection = TcpStream::connect(server.address()).await.unwrap();
        connection.write_all(b"MONITOR\r\n").await.unwrap();
        let mut lines = BufReader::new(connection).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("+OK"));
        Self(lines)
    }

    pub(crate) async fn next(&mut self) -> String {
        self.next_with_time().await.1
    }

    /// The time is in microseconds since 1970.
    pub(crate) async fn next_with_time(&mut self) -> (u64, String) {
        let line = soon(self.0.next_line()).await.unwrap().unwrap();
        let (client, command) = line.split_once("] ").unwrap();
        let from = if client.ends_with("lua") { "lua " } else { "" };
        let time = client.strip_prefix('+').unwrap().split(' ').next().unwrap();
        (time.replace('.', "").parse().unwrap(), format!("{from}{command}"))
    }

    async fn until(&mut self, last: &str) -> Vec<String> {
        let mut commands = Vec::new();
        loop {
            let command = self.next().await;
            println!("{command}");
            commands.push(command.clone());
            if command.contains(last) {
                return commands;
            }
        }
    }
}

fn three() -> Vec<Claim> {
    claims_of(3)
}

fn claims_of(keys: usize) -> Vec<Claim> {
    (0..keys)
        .map(|number| claims::claim(&format!("job-{number}").parse().unwrap(), "a", TTL))
        .collect()
}

async fn obtain_all(store: &RedisStore, claims: &[Claim]) -> Vec<Result<Obtained, StoreError>> {
    join_all(claims.iter().map(|claim| store.obtain(claim))).await
}

fn granted(answers: Vec<Result<Obtained, StoreError>>) -> Vec<Grant> {
    answers.into_iter().map(|answer| claims::granted(answer.unwrap()).0).collect()
}

async fn release_all(store: &RedisStore, grants: &[Grant]) -> Vec<Result<(), StoreError>> {
    join_all(grants.iter().map(|grant| store.release(grant, None))).await
}

fn count(commands: &[String], start: &str) -> usize {
    commands.iter().filter(|command| command.starts_with(start)).count()
}

/// After many requests in this call, even a few requests share batches.
async fn loaded(store: &RedisStore) {
    let grants = granted(obtain_all(store, &claims_of(8)).await);
    release_all(store, &grants).await;
}

#[tokio::test]
async fn few_callers_write_their_claims_themselves() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let mut monitor = Monitor::start(&server).await;

    granted(obtain_all(&store, &three()).await);

    let claimed = monitor.until("lease:{job-2}").await;
    assert_eq!(count(&claimed, "\"MULTI\""), 3, "{claimed:#?}");
}

#[tokio::test]
async fn three_claims_share_a_transaction_and_three_releases_a_script() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    loaded(&store).await;
    let mut monitor = Monitor::start(&server).await;

    let grants = granted(obtain_all(&store, &three()).await);
    let claimed = monitor.until("\"EXEC\"").await;
    release_all(&store, &grants).await;
    let released = monitor.until("\"DEL\"").await;

    let counts = ["\"MULTI\"", "\"SET\"", "\"XADD\"", "\"EXEC\""].map(|it| count(&claimed, it));
    assert_eq!((counts, claimed.len()), ([1, 3, 1, 1], 6), "{claimed:#?}");
    let counts = ["\"EVALSHA\"", "lua \"MGET\"", "lua \"DEL\""].map(|it| count(&released, it));
    assert_eq!((counts, released.len()), ([1, 1, 1], 3), "{released:#?}");
    assert!(grants.iter().all(|grant| grant.token == grants[0].token));
}

#[tokio::test]
async fn one_claim_takes_four_commands() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    loaded(&store).await;
    let mut monitor = Monitor::start(&server).await;

    let grants = granted(obtain_all(&store, &three()[..1]).await);
    let claimed = monitor.until("\"EXEC\"").await;
    release_all(&store, &grants).await;
    let released = monitor.until("\"DEL\"").await;

    assert_eq!(claimed.len(), 4, "{claimed:#?}");
    assert_eq!(released.len(), 3, "{released:#?}");
}

/// Locks with a heartbeat, and locks of other claims, need the rest of the script.
#[tokio::test]
async fn releases_of_changed_and_unchanged_locks_share_a_script() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    loaded(&store).await;
    let mut grants = granted(obtain_all(&store, &three()).await);
    let extended = store.heartbeat(&grants[0], Beat::new(1)).await.unwrap();
    assert_eq!(extended, Heartbeat::Extended);
    grants[1].nonce = Nonce::random();

    let released = release_all(&store, &grants).await;

    assert!(released.iter().all(Result::is_ok), "{released:?}");
    assert!(server.lease_left("job-0").is_none() && server.lease_left("job-2").is_none());
    assert!(server.lease_left("job-1").is_some(), "another claim holds the key");
}

#[tokio::test]
async fn key_of_the_wrong_type_fails_alone() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    loaded(&store).await;
    let claims = three();
    server.command("SET lease:{job-1} foreign");

    let mut answers = obtain_all(&store, &claims).await;

    let foreign = answers.remove(1).unwrap_err();
    assert_eq!(foreign.kind(), StoreErrorKind::Corrupt, "{}", text(&foreign));
    let mut grants = granted(answers);
    grants.insert(1, claims[1].granted(grants[0].token));
    let released = release_all(&store, &grants).await;
    assert!(released.iter().all(Result::is_ok), "{released:?}");
    assert_eq!(server.command("GET lease:{job-1}"), "foreign");
    assert!(server.lease_left("job-0").is_none() && server.lease_left("job-2").is_none());
}

#[tokio::test]
async fn full_server_grants_no_claim_of_a_batch_and_releases_all() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    loaded(&store).await;
    let grants = granted(obtain_all(&store, &three()).await);
    server.command("CONFIG SET maxmemory 1");

    let others = (3..6).map(|number| format!("job-{number}").parse().unwrap());
    let others: Vec<_> = others.map(|key| claims::claim(&key, "b", TTL)).collect();
    let (refused, released) =
        tokio::join!(obtain_all(&store, &others), release_all(&store, &grants));

    for answer in refused {
        assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Throttled);
    }
    assert!(released.iter().all(Result::is_ok), "{released:?}");
    assert!((0..6).all(|number| server.lease_left(&format!("job-{number}")).is_none()));
}

#[tokio::test]
async fn claim_that_is_dropped_before_its_batch_is_not_sent() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    loaded(&store).await;
    let claims = three();
    let mut monitor = Monitor::start(&server).await;

    let mut dropped = Box::pin(store.obtain(&claims[1]));
    assert!(futures_util::poll!(&mut dropped).is_pending());
    let others = [claims[0].clone(), claims[2].clone()];
    let others = async {
        drop(dropped);
        granted(obtain_all(&store, &others).await)
    };
    assert_eq!(others.await.len(), 2);

    let claimed = monitor.until("\"EXEC\"").await;
    assert_eq!(count(&claimed, "\"SET\""), 2, "{claimed:#?}");
    assert!(server.lease_left("job-1").is_none());
}

#[tokio::test]
async fn batch_whose_connection_breaks_is_unknown_and_recognised_again() {
    let Some([server]) = servers() else { return };
    let proxy = Proxy::start(server.address(), Wire::Redis).await.unwrap();
    let store = one_at(format!("redis://{}", proxy.address())).await;
    loaded(&store).await;
    let claims = three();
    proxy.next_with("MULTI", Fault::CutAfter);

    for answer in obtain_all(&store, &claims).await {
        let unknown = answer.unwrap_err();
        assert!(unknown.is_retryable(), "{}", text(&unknown));
    }

    assert!((0..3).all(|number| server.lease_left(&format!("job-{number}")).is_some()));
    let again: Vec<_> = claims.iter().cloned().map(Claim::repeated).collect();
    for (grant, claim) in granted(obtain_all(&store, &again).await).iter().zip(&claims) {
        assert_eq!(grant.request, Some(claim.request), "the first request was granted");
    }
}

#[tokio::test]
async fn batch_on_a_hung_server_delays_no_later_batch() {
    let Some([server]) = servers() else { return };
    let limit = Duration::from_millis(200);
    let store = RedisStore::builder(server.url()).with_timeout(limit).connect().await.unwrap();
    loaded(&store).await;
    server.hang();

    for answer in obtain_all(&store, &three()).await {
        assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unavailable);
    }

    server.go_on();
    let last = obtain_eventually(&store, "b").await;
    eventually("released", async || store.release(&last, None).await.ok()).await;
}

/// The next batch has tokens of a new stream.
#[tokio::test]
async fn claim_after_a_flush_has_a_larger_token() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;

    let time = "EVAL \"local time = redis.call('TIME') return time[1] * 1000000 + time[2]\" 0";
    let now = || server.command(time).parse::<u64>().unwrap();

    for _ in 0..200 {
        let before = granted(obtain_all(&store, &three()).await);
        server.command("FLUSHALL");
        let after = granted(obtain_all(&store, &three()).await);
        assert!(after[0].token > before[0].token, "{} after {}", after[0].token, before[0].token);
        release_all(&store, &after).await;
        eventually("the next millisecond", async || (now() > after[0].token.get()).then_some(()))
            .await;
    }
}

/// All ids of one millisecond are used up, twice. Each time, a script continues the stream.
#[tokio::test]
async fn tokens_grow_while_the_clock_is_behind_the_last_id() {
    let Some(server) = RedisServer::with_clock() else { return };
    let store = one(&server).await;
    let first = granted(obtain_all(&store, &three()).await).remove(0);
    server.command("FLUSHALL");
    server.command(&format!("XADD lease:tokens {}-0 t 1", first.token.get() / 1000 + 3_600_000));

    let mut last = first.token;
    for _ in 0..2500 {
        let grants = granted(obtain_all(&store, &three()[..1]).await);
        assert!(grants[0].token > last, "{} after {last}", grants[0].token);
        last = grants[0].token;
        release_all(&store, &grants).await;
    }
}
