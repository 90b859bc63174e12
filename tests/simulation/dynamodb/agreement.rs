//! Compares the model with an emulator: whether each accepts a write, and the item after the write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpRequest;
use aws_smithy_runtime_api::client::http::HttpConnectorFuture;
use dynoxide::{Database, DynoxideError};
use lease_core::store::{
    Beat, Claim, Ended, LastGrant, LeaseRecord, LeaseTable, LockStore, Nonce, Parent, Sessions,
    Vacancy,
};
use lease_core::{Attributes, Change, FencingToken, Holder, Value as Attribute};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::dynamodb_model;
use lease_test_servers::simulation::expression::Item;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::request::{KEY, Request};
use super::table::Table;

#[tokio::test(start_paused = true)]
async fn model_agrees_with_an_emulator() {
    let mut random = StdRng::seed_from_u64(7);
    let writes = writes_of_the_store().await;
    let mut passed = 0;
    for round in 0..40 {
        for (number, (operation, body)) in writes.iter().enumerate() {
            let item = any_item(&mut random);
            let Request::Write(write) = Request::parse(operation, body).unwrap() else { continue };
            let mut table = Table::default();
            table.set(Duration::ZERO, JOB, item.clone());
            let allowed = table.allows(&write).unwrap();
            if allowed {
                table.apply(Duration::ZERO, &write).unwrap();
                passed += 1;
            }

            let emulated = emulated(operation, body, item.as_ref());

            let modelled = (allowed, table.get(JOB).cloned());
            assert!(emulated == modelled, "round {round}, write {number}: {body:#}\n on {item:#?}");
        }
    }
    assert!(passed > 40, "only {passed} writes are accepted");
}

fn emulated(operation: &str, body: &Value, item: Option<&Item>) -> (bool, Option<Item>) {
    let database = Database::memory().unwrap();
    let table = json!({
        "TableName": "leases",
        "AttributeDefinitions": [{ "AttributeName": KEY, "AttributeType": "S" }],
        "KeySchema": [{ "AttributeName": KEY, "KeyType": "HASH" }],
        "BillingMode": "PAY_PER_REQUEST",
    });
    database.create_table(serde_json::from_value(table).unwrap()).unwrap();
    if let Some(item) = item {
        let put = json!({ "TableName": "leases", "Item": item });
        database.put_item(serde_json::from_value(put).unwrap()).unwrap();
    }
    let body = body.clone();
    let outcome = if operation == "PutItem" {
        database.put_item(serde_json::from_value(body).unwrap()).map(drop)
    } else {
        database.update_item(serde_json::from_value(body).unwrap()).map(drop)
    };
    let passes = match outcome {
        Ok(()) => true,
        Err(DynoxideError::ConditionalCheckFailedException(..)) => false,
        Err(error) => panic!("{error}"),
    };
    let get = json!({ "TableName": "leases", "Key": { KEY: { "S": JOB } } });
    let answer = database.get_item(serde_json::from_value(get).unwrap()).unwrap();
    let answer = serde_json::to_value(answer).unwrap();
    (passes, answer.get("Item").and_then(Value::as_object).cloned())
}

/// Each call is made before and after the store knows the server's time.
async fn writes_of_the_store() -> Vec<(String, Value)> {
    let requests = Requests::default();
    let log = Arc::clone(&requests);
    let client =
        Client::from_conf(dynamodb_model::config(move |request| record(&log, request)).build());
    let ttl = Duration::from_secs(10);
    let claim = Claim::new(JOB.parse().unwrap(), "a".parse().unwrap(), nonce(1), ttl);
    let next = Claim::new(JOB.parse().unwrap(), "b".parse().unwrap(), nonce(2), ttl);
    let grant = claim.granted(FencingToken::new(5).unwrap());
    let change = Change::new().set("note", "new").remove("old");
    let only_if = change.clone().expecting("note", "mine").expecting_none("other");
    let attributes = Attributes::from([("note".to_owned(), Attribute::from("first"))]);
    let session = Parent::from(&grant);
    let vacancies = vacancies(&claim);
    let purging = DynamoDbStore::new(client.clone(), "leases");
    let keeping = DynamoDbStore::builder(client, "leases").only_existing_rows().build().unwrap();
    for store in [purging, keeping] {
        for _ in ["before the first date", "after it"] {
            drop(store.obtain(&claim).await);
            drop(store.heartbeat(&grant, Beat::new(2)).await);
            drop(store.release(&grant, None).await);
            drop(store.release(&grant, Some(ttl)).await);
            drop(store.adopt(&grant, &next).await);
            drop(store.update(&grant, &change).await);
            drop(store.update(&grant, &only_if).await);
            drop(store.transfer(&grant, &next.lessee, ttl).await);
            drop(store.delete(&grant).await);
            drop(store.create(&grant.key, &attributes).await);
            drop(store.evict(&grant.key, &grant.token.into()).await);
            drop(store.end_session(&session).await);
            drop(store.count(&grant.key, "count").await);
            for vacancy in &vacancies {
                drop(store.obtain_under(&claim, vacancy).await);
                drop(store.obtain_under(&next.clone().under(session.clone()), vacancy).await);
            }
        }
    }
    requests.lock().unwrap().clone()
}

/// A key that was seen without a record, free, and under a session that has ended.
fn vacancies(claim: &Claim) -> Vec<Vacancy> {
    let session = Parent::new("worker".parse().unwrap(), FencingToken::new(3).unwrap());
    let proof = Ended::written(session.clone());
    let record = |holder| {
        let token = FencingToken::new(5).ok();
        LeaseRecord::new(claim.key.clone(), holder, token, Attributes::new())
    };
    let free = record(None).with_end(LastGrant::Ended, None);
    let holder = Holder::new(claim.lessee.clone(), None).with_parent(Some(session));
    let seen = [None, Some(free), Some(record(Some(holder)))];
    let vacancy = |record: &Option<LeaseRecord>| {
        Vacancy::seen(&claim.key, record.as_ref(), &claim.lessee, Some(&proof)).unwrap()
    };
    seen.iter().map(vacancy).collect()
}

/// A lease could have written some of the items, but not others.
fn any_item(random: &mut StdRng) -> Option<Item> {
    if random.random_range(0..8) == 0 {
        return None;
    }
    let far = "4000000000000";
    let choices = [
        ("lessee", vec![json!({ "S": "a" }), json!({ "S": "a" }), json!({ "NULL": true })]),
        ("nonce", vec![json!({ "S": nonce(1).to_string() }), json!({ "S": nonce(2).to_string() })]),
        ("token", vec![json!({ "N": "5" }), json!({ "N": "5" }), json!({ "N": "40" })]),
        ("beat", vec![json!({ "N": "0" }), json!({ "N": "2" }), json!({ "N": "10" })]),
        ("ttl_ms", vec![json!({ "N": "9" })]),
        ("expires_at", vec![json!({ "N": far }), json!({ "N": far }), json!({ "N": "5" })]),
    ];
    let rare = [
        ("offered_to", vec![json!({ "S": "a" }), json!({ "S": "b" })]),
        ("reserved_until", vec![json!({ "N": "5" }), json!({ "N": far })]),
        ("former", vec![json!({ "S": "b" })]),
        ("evicted", vec![json!({ "BOOL": true })]),
        ("deleted", vec![json!({ "BOOL": true })]),
        ("lasting", vec![json!({ "S": "never" })]),
        ("parent", vec![json!({ "S": "worker" })]),
        ("parent_token", vec![json!({ "N": "3" })]),
        ("count", vec![json!({ "N": "7" }), json!({ "S": "7" })]),
        ("purge_at", vec![json!({ "N": "7" }), json!({ "S": "never" })]),
        ("note", vec![json!({ "S": "mine" }), json!({ "S": "mine" }), json!({ "B": "bWluZQ==" })]),
        ("old", vec![json!({ "L": [{ "N": "1" }] })]),
        ("other", vec![json!({ "NULL": true })]),
    ];
    let mut item = Item::from_iter([(KEY.to_owned(), json!({ "S": JOB }))]);
    for (odds, columns) in [(0.8, &choices[..]), (0.15, &rare[..])] {
        for (name, values) in columns {
            if random.random_bool(odds) {
                let value = &values[random.random_range(0..values.len())];
                item.insert((*name).to_owned(), value.clone());
            }
        }
    }
    Some(item)
}

fn nonce(number: u128) -> Nonce {
    Nonce::new(uuid::Uuid::from_u128(number))
}

type Requests = Arc<Mutex<Vec<(String, Value)>>>;

fn record(requests: &Requests, request: &HttpRequest) -> HttpConnectorFuture {
    let operation = dynamodb_model::operation(request).to_owned();
    let body = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
    requests.lock().unwrap().push((operation, body));
    let mut response = dynamodb_model::response(500, "{}");
    response.headers_mut().insert("date", "Tue, 14 Nov 2023 22:13:20 GMT");
    HttpConnectorFuture::ready(Ok(response))
}

const JOB: &str = "job";
