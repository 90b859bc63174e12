//! Batches of reads of which DynamoDB answers a part.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::http::HttpConnectorFuture;
use lease_core::store::{LeaseRecord, Sessions};
use lease_core::{LeaseKey, StoreErrorKind};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::dynamodb_model;
use serde_json::{Value, json};

use super::request::KEY;

#[tokio::test(start_paused = true)]
async fn keys_that_an_answer_leaves_out_are_asked_for_again() {
    let (requests, store) = store_answering(|asked| asked.div_ceil(2));
    let keys = keys(80);

    let read = store.read_all(&keys).await;

    let found: Vec<LeaseRecord> = read.into_iter().map(|record| record.unwrap().unwrap()).collect();
    assert!(found.iter().map(|record| &record.key).eq(&keys));
    // 80 keys: 40 are answered, then 20, 10, 5, 3, 1, 1.
    assert_eq!(requests.load(Ordering::SeqCst), 7);
}

#[tokio::test(start_paused = true)]
async fn keys_that_no_answer_contains_are_throttled() {
    let (requests, store) = store_answering(|asked| asked.saturating_sub(10));
    let keys = keys(80);

    let read = store.read_all(&keys).await;

    let failed = read.iter().filter_map(|record| record.as_ref().err());
    assert!(failed.map(lease_core::StoreError::kind).eq([StoreErrorKind::Throttled; 10]));
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

fn keys(count: usize) -> Vec<LeaseKey> {
    (0..count).map(|number| format!("shards/{number:03}").parse().unwrap()).collect()
}

/// An answer to some keys has the items of the first `answered`.
fn store_answering(answered: fn(usize) -> usize) -> (Arc<AtomicUsize>, DynamoDbStore) {
    let requests = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requests);
    let config = dynamodb_model::config(move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        HttpConnectorFuture::ready(Ok(answer(request, answered)))
    });
    (requests, DynamoDbStore::new(Client::from_conf(config.build()), "leases"))
}

fn answer(request: &HttpRequest, answered: fn(usize) -> usize) -> HttpResponse {
    assert_eq!(dynamodb_model::operation(request), "BatchGetItem");
    let body: Value = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
    let keys = body["RequestItems"]["leases"]["Keys"].as_array().unwrap();
    let (now, later) = keys.split_at(answered(keys.len()));
    let items: Vec<Value> =
        now.iter().map(|key| json!({ KEY: key[KEY], "token": { "N": "5" } })).collect();
    let left = if later.is_empty() { json!({}) } else { json!({ "leases": { "Keys": later } }) };
    let body = json!({ "Responses": { "leases": items }, "UnprocessedKeys": left });
    dynamodb_model::response(200, body.to_string())
}
