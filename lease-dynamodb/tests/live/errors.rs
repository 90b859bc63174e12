//! Errors: refusals by DynamoDB, and refusals by the store before any request.

use std::collections::BTreeSet;
use std::error::Error;

use lease_core::store::{Beat, LeaseTable, LockStore};
use lease_core::{Attributes, Change, StoreError, StoreErrorKind, Value};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::claims::{claim, fresh_key, obtain};
use lease_test_servers::dynamodb::{Server, client_of};
use lease_test_servers::proxy::{Proxy, Wire};

use crate::requests::counted;
use crate::setup::{LONG, TABLE, server_and_store, with_long_timeout};

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
    let store = with_long_timeout(client_of(proxy.address()), TABLE).build().unwrap();
    (proxy, store)
}

#[tokio::test]
async fn each_refusal_has_kind_and_remedy() {
    let (server, _) = server_and_store().await;
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
async fn throttled_heartbeat_is_no_loss() {
    let (server, store) = server_and_store().await;
    let grant = obtain(&store, &fresh_key("job"), "a", LONG).await;

    let (_proxy, throttled) = refusing(&server, 400, "ThrottlingException").await;
    let error = throttled.heartbeat(&grant, Beat::new(1)).await.unwrap_err();

    assert!(error.is_retryable());
}

#[tokio::test]
async fn missing_table_error_names_table_and_remedy() {
    let server = Server::dynoxide().await;
    let store = DynamoDbStore::new(server.client(), "nowhere");

    let error = store.holder(&fresh_key("job")).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let text = text(&error);
    assert!(text.contains("nowhere") && text.contains("ensure_table()"), "{text}");
}

#[tokio::test]
async fn missing_credentials_are_reported() {
    let (server, _) = server_and_store().await;
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
async fn unreachable_server_is_unavailable() {
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
async fn impossible_values_are_refused_before_any_request() {
    let (_server, count, _, store) = counted().await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", LONG).await;
    count.take();

    let large = Attributes::from([("large".to_owned(), Value::Bytes(vec![0; 410 * 1024]))]);
    let empty = Value::TextSet(BTreeSet::new());
    for (what, refused) in [
        ("410 KB", store.create(&fresh_key("large"), &large).await.unwrap_err()),
        (
            "a column of the lease",
            store.update(&grant, &Change::new().set("token", 1_u64)).await.unwrap_err(),
        ),
        (
            "a column of the lease",
            store.update(&grant, &Change::new().remove("nonce")).await.unwrap_err(),
        ),
        ("an empty set", store.update(&grant, &Change::new().set("set", empty)).await.unwrap_err()),
    ] {
        assert_eq!(refused.kind(), StoreErrorKind::Refused, "{what}");
    }

    assert_eq!(count.take(), 0);
}
