//! What is told when DynamoDB refuses, and what is refused before DynamoDB hears of it.

use std::collections::BTreeSet;
use std::error::Error;

use lease_core::{
    Attributes, Beat, Change, LeaseTable, LockStore, StoreError, StoreErrorKind, Value,
};
use lease_dynamodb::DynamoDbStore;
use lease_tests::claims::{claim, fresh_key, obtain};
use lease_tests::dynamodb::{Server, client_of};
use lease_tests::proxy::{Proxy, Wire};

use crate::requests::counted;
use crate::world::{LONG, TABLE, world};

fn text(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut level = error.source();
    while let Some(cause) = level {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        level = cause.source();
    }
    text
}

/// A server that gives one answer to everything.
async fn refusing(server: &Server, status: u16, code: &str) -> (Proxy, DynamoDbStore) {
    let body =
        format!("{{\"__type\":\"com.amazonaws.dynamodb.v20120810#{code}\",\"message\":\"no\"}}");
    let reply = format!(
        "HTTP/1.1 {status} No\r\ncontent-type: application/x-amz-json-1.0\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let proxy =
        Proxy::start_rewriting(server.address(), Wire::Http, move |_| reply.clone().into_bytes())
            .await
            .unwrap();
    let store = DynamoDbStore::new(client_of(proxy.address()), TABLE);
    (proxy, store)
}

#[tokio::test]
async fn each_refusal_says_whether_to_ask_again_and_what_to_do() {
    let (server, _) = world().await;
    for (status, code, kind, advice) in [
        (400, "ThrottlingException", StoreErrorKind::Throttled, "capacity"),
        (400, "ProvisionedThroughputExceededException", StoreErrorKind::Throttled, "on demand"),
        (400, "AccessDeniedException", StoreErrorKind::Denied, "dynamodb:UpdateItem"),
        (400, "UnrecognizedClientException", StoreErrorKind::Denied, "credentials"),
        (400, "ResourceNotFoundException", StoreErrorKind::Misconfigured, "ensure_table()"),
        (500, "InternalServerError", StoreErrorKind::Unavailable, "InternalServerError"),
        (503, "ServiceUnavailable", StoreErrorKind::Unavailable, "ServiceUnavailable"),
    ] {
        let (_proxy, store) = refusing(&server, status, code).await;

        let error = store.obtain(&claim(&fresh_key("job"), "a", LONG)).await.unwrap_err();

        let text = text(&error);
        assert_eq!(error.kind(), kind, "{code}: {text}");
        assert!(text.contains(advice), "{code}: {text}");
        let retryable = matches!(kind, StoreErrorKind::Throttled | StoreErrorKind::Unavailable);
        assert_eq!(error.is_retryable(), retryable, "{code}");
    }
}

#[tokio::test]
async fn throttling_is_never_a_loss() {
    let (server, store) = world().await;
    let grant = obtain(&store, &fresh_key("job"), "a", LONG).await;

    let (_proxy, throttled) = refusing(&server, 400, "ThrottlingException").await;
    let error = throttled.heartbeat(&grant, Beat::new(1)).await.unwrap_err();

    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_missing_table_is_named_with_what_to_do() {
    let server = Server::dynoxide().await;
    let store = DynamoDbStore::new(server.client(), "nowhere");

    let error = store.holder(&fresh_key("job")).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let text = text(&error);
    assert!(text.contains("nowhere") && text.contains("ensure_table()"), "{text}");
}

#[tokio::test]
async fn a_client_without_credentials_is_told_so() {
    let (server, _) = world().await;
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
        .region(aws_sdk_dynamodb::config::Region::from_static("us-east-1"))
        .endpoint_url(format!("http://{}", server.address()))
        .http_client(server.config().build().http_client().unwrap())
        .build();
    let store = DynamoDbStore::new(aws_sdk_dynamodb::Client::from_conf(config), TABLE);

    let error = store.holder(&fresh_key("job")).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{}", text(&error));
    assert!(text(&error).contains("credentials"), "{}", text(&error));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let address = {
        let server = Server::dynoxide().await;
        let proxy = server.proxy().await;
        proxy.address()
    };
    let store = DynamoDbStore::new(client_of(address), TABLE);

    let error = store.holder(&fresh_key("job")).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_before_it_is_sent() {
    let (_server, count, _, store) = counted().await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", LONG).await;
    count.take();

    let large = Attributes::from([("large".to_owned(), Value::Bytes(vec![0; 410 * 1024]))]);
    let empty = Value::TextSet(BTreeSet::new());
    for (what, refused) in [
        ("410 KB", store.create(&fresh_key("large"), &large).await.unwrap_err()),
        (
            "a column of ours",
            store.update(&grant, &Change::new().set("token", 1_u64)).await.unwrap_err(),
        ),
        (
            "a column of ours",
            store.update(&grant, &Change::new().remove("nonce")).await.unwrap_err(),
        ),
        ("an empty set", store.update(&grant, &Change::new().set("set", empty)).await.unwrap_err()),
    ] {
        assert_eq!(refused.kind(), StoreErrorKind::Refused, "{what}");
    }

    assert_eq!(count.take(), 0);
}
