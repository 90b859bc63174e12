//! One control per condition of a session's writes: the server treats the condition as true, and
//! the write does harm.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::{
    BeforeTransmitInterceptorContextMut, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{Builder, ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_types::body::SdkBody;
use dynoxide::Database;
use lease_core::conformance::SkewedClock;
use lease_core::store::{
    Beat, Ended, Grant, LastGrant, LeaseRecord, LockStore, Obtained, Parent, SessionState,
    Sessions, Vacancy,
};
use lease_core::{Attributes, FencingToken, Holder, LeaseKey};
use lease_dynamodb::{DynamoDbStore, TimeMode};
use lease_test_servers::claims::{fresh_key, obtain};
use lease_test_servers::dynamodb::{Server, client_of, config_of};
use serde_json::json;

use super::{TTL, child, child_claim, end};
use crate::setup::{LONG, TABLE, item, n, put, s, server_and_store, with_long_timeout};

#[tokio::test]
async fn claim_of_a_held_key_compares_holder_and_session() {
    let (server, store) = server_and_store().await;
    let session = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let other = Parent::new(fresh_key("worker"), session.token);
    let earlier = Parent::new(session.key.clone(), less(session.token));
    for (condition, former) in [
        ("attribute_not_exists(lessee)", None),
        ("parent = :former_key", Some(other)),
        ("parent_token = :former_token", Some(earlier)),
    ] {
        let key = fresh_key("shard");
        let held = child(&store, &key, &session).await;
        let vacancy = forged(&key, Some(held.token), former.as_ref());

        assert!(!grants(&sound(&server), &vacancy, &session).await, "{condition}");
        assert!(grants(&lax(&server, condition), &vacancy, &session).await, "{condition}");
    }
}

#[tokio::test]
async fn claim_compares_the_token_that_it_has_seen() {
    let (server, store) = server_and_store().await;
    let session = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    for (condition, is_first) in
        [("attribute_not_exists(#token)", true), ("#token = :seen_token", false)]
    {
        let key = fresh_key("shard");
        let released = child(&store, &key, &session).await;
        store.release(&released, None).await.unwrap();
        let seen = (!is_first).then(|| less(released.token));
        let vacancy = forged(&key, seen, None);

        assert!(!grants(&sound(&server), &vacancy, &session).await, "{condition}");
        assert!(grants(&lax(&server, condition), &vacancy, &session).await, "{condition}");
    }
}

#[tokio::test]
async fn end_of_session_compares_the_expiry() {
    let (server, store) = server_and_store().await;
    let session = Parent::from(&obtain(&store, &fresh_key("worker"), "a", LONG).await);

    assert!(!ends(&store, &session).await);
    assert!(ends(&informed(&lax(&server, "expires_at <= :over")).await, &session).await);
}

#[tokio::test]
async fn end_of_session_compares_the_token() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("worker");
    let granted = obtain(&store, &key, "a", TTL).await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(3600);
    let later = |condition: Option<&'static str>| {
        let config = config_of(proxy.address());
        build(match condition {
            Some(condition) => config.interceptor(Assumes(condition)),
            None => config,
        })
    };
    let unknown = Parent::new(key, FencingToken::new(granted.token.get() + 1).unwrap());

    assert!(end(&informed(&later(None)).await, &unknown).await.is_err());
    assert!(ends(&informed(&later(Some("#token = :token"))).await, &unknown).await);
}

/// An earlier session of the same lessee may have the same beat, but another token.
#[tokio::test]
async fn end_of_session_by_observation_compares_token_and_beat() {
    let (server, store) = server_and_store().await;
    for (condition, is_new_session) in
        [("#token = :seen_token", true), ("beat = :seen_beat", false)]
    {
        for (client, does_harm) in [(sound(&server), false), (lax(&server, condition), true)] {
            let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
            let observer = with_long_timeout(client, TABLE)
                .with_time_mode(TimeMode::ObservationOnly)
                .with_clock(Arc::<SkewedClock>::clone(&clock))
                .build()
                .unwrap();
            let key = fresh_key("worker");
            let mut session = obtain(&store, &key, "a", TTL).await;
            assert!(!ends(&observer, &Parent::from(&session)).await);
            clock.leap(TTL * 2);

            if is_new_session {
                store.release(&session, None).await.unwrap();
                session = obtain(&store, &key, "a", TTL).await;
            } else {
                store.heartbeat(&session, Beat::new(1)).await.unwrap();
            }

            let ended = ends(&observer, &Parent::from(&session)).await;
            assert_eq!(ended, does_harm, "{condition}");
        }
    }
}

#[tokio::test]
async fn end_mark_of_a_missing_item_does_not_replace_a_new_one() {
    for (condition, does_harm) in [(None, false), (Some("attribute_not_exists(lease_key)"), true)] {
        let (server, _) = server_and_store().await;
        let session = Parent::new(fresh_key("worker"), FencingToken::new(5).unwrap());
        let store = informed(&meddled(&server, &session.key, condition)).await;

        assert!(ends(&store, &session).await);

        let token = item(&server, &session.key).await.unwrap()["token"].clone();
        assert_eq!(token, n(if does_harm { 5 } else { 9 }), "{condition:?}");
    }
}

#[tokio::test]
async fn end_mark_of_an_item_without_a_token_does_not_lower_a_new_one() {
    for (condition, does_harm) in [(None, false), (Some("attribute_not_exists(#token)"), true)] {
        let (server, _) = server_and_store().await;
        let session = Parent::new(fresh_key("worker"), FencingToken::new(5).unwrap());
        put(&server, &[("lease_key", s(session.key.as_str()))]).await;
        let store = informed(&meddled(&server, &session.key, condition)).await;

        assert!(ends(&store, &session).await);

        let token = item(&server, &session.key).await.unwrap()["token"].clone();
        assert_eq!(token, n(if does_harm { 5 } else { 9 }), "{condition:?}");
    }
}

/// Returns a vacancy with this token, as if the key were free or held under `former`.
fn forged(key: &LeaseKey, token: Option<FencingToken>, former: Option<&Parent>) -> Vacancy {
    let under = |session: &Parent| {
        Holder::new("b".parse().unwrap(), None).with_parent(Some(session.clone()))
    };
    let record = LeaseRecord::new(key.clone(), former.map(under), token, Attributes::new());
    let record = record.with_end(LastGrant::Ended, None);
    let proof = former.cloned().map(Ended::written);
    Vacancy::seen(key, Some(&record), &"a".parse().unwrap(), proof.as_ref()).unwrap()
}

async fn grants(client: &Client, vacancy: &Vacancy, session: &Grant) -> bool {
    let store = with_long_timeout(client.clone(), TABLE).without_purging().build().unwrap();
    let claim = child_claim(vacancy.key(), session);
    matches!(store.obtain_under(&claim, vacancy).await.unwrap(), Obtained::Granted(..))
}

async fn ends(store: &DynamoDbStore, session: &Parent) -> bool {
    matches!(end(store, session).await.unwrap(), SessionState::Ended(_))
}

/// A store that knows the server's time.
async fn informed(client: &Client) -> DynamoDbStore {
    let store = with_long_timeout(client.clone(), TABLE).build().unwrap();
    obtain(&store, &fresh_key("any"), "a", LONG).await;
    store
}

fn less(token: FencingToken) -> FencingToken {
    FencingToken::new(token.get() - 1).unwrap()
}

fn sound(server: &Server) -> Client {
    client_of(server.address())
}

/// A client of a server that treats `condition` as true.
fn lax(server: &Server, condition: &'static str) -> Client {
    build(config_of(server.address()).interceptor(Assumes(condition)))
}

fn build(config: Builder) -> Client {
    Client::from_conf(config.retry_config(RetryConfig::disabled()).build())
}

/// A client of a server that grants `key` under token 9 just before the end of its session is
/// marked.
fn meddled(server: &Server, key: &LeaseKey, condition: Option<&'static str>) -> Client {
    let meddling = Meddling { database: server.database(), key: key.clone() };
    let config = config_of(server.address()).interceptor(meddling);
    build(match condition {
        Some(condition) => config.interceptor(Assumes(condition)),
        None => config,
    })
}

struct Meddling {
    database: Database,
    key: LeaseKey,
}

impl Intercept for Meddling {
    fn name(&self) -> &'static str {
        "a grant by another process"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = String::from_utf8_lossy(context.request().body().bytes().unwrap_or_default());
        if body.contains("SET #token = :token") {
            let item = json!({
                "TableName": TABLE,
                "Item": { "lease_key": { "S": self.key.as_str() }, "token": { "N": "9" } },
            });
            self.database.put_item(serde_json::from_value(item)?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Meddling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meddling").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Assumes(&'static str);

impl Intercept for Assumes {
    fn name(&self) -> &'static str {
        "an assumed condition"
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request_mut();
        let body = String::from_utf8(request.body().bytes().unwrap_or_default().to_vec())?;
        let Self(condition) = self;
        let assumed = format!(
            "({condition} OR attribute_exists(lease_key) OR attribute_not_exists(lease_key))"
        );
        let body = match body.split_once("\"ConditionExpression\":") {
            Some((update, rest)) => {
                let rest = rest.replacen(condition, &assumed, 1);
                format!("{update}\"ConditionExpression\":{rest}")
            }
            None => body,
        };
        request.headers_mut().insert("content-length", body.len().to_string());
        *request.body_mut() = SdkBody::from(body);
        Ok(())
    }
}
