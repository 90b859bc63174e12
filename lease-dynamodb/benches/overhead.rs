//! Compares the store with bare conditional writes, as ratios. All variants take turns on one
//! server, so other load on the machine affects them equally.
//!
//! - *same*: the same writes, written by hand. The ratio shows the cost of this crate.
//! - *smallest*: the smallest possible lock, without expiry, detection of late duplicates, purging
//!   or transfers. The ratio also contains the cost of the protocol.
//!
//! ```sh
//! cargo bench -p lease-dynamodb
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed step ends the benchmark; results are printed"
)]

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use lease_core::LeaseKey;
use lease_core::store::{BootClock, Clock, LockStore};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::claims::{claim, fresh_key, fresh_nonce, granted};
use lease_test_servers::dynamodb::{Count, Server};

const ROUNDS: usize = 60;
const CYCLES: u32 = 100;
/// Each cycle sends two requests: an obtain and a release.
const REQUESTS: usize = 200;
const TTL: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = Server::dynoxide().await;
    let (count, config) = Count::of(server.config());
    let client = Client::from_conf(config.build());
    let store = DynamoDbStore::new(client.clone(), "leases");
    store.ensure_table().await.unwrap();
    let keys = ["smallest", "same", "store"].map(fresh_key);

    let mut times = [const { Vec::new() }; 3];
    let (mut to_same, mut to_smallest) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        count.take();
        let smallest = timed(async || smallest_cycle(&client, &keys[0]).await).await;
        assert_eq!(count.take(), REQUESTS, "requests");
        let same = timed(async || same_cycle(&client, &keys[1]).await).await;
        assert_eq!(count.take(), REQUESTS, "requests");
        let store = timed(async || store_cycle(&store, &keys[2]).await).await;
        assert_eq!(count.take(), REQUESTS, "requests");
        if round >= ROUNDS / 6 {
            to_same.push(store / same);
            to_smallest.push(store / smallest);
            for (times, time) in times.iter_mut().zip([smallest, same, store]) {
                times.push(time);
            }
        }
    }

    println!("obtain and release, 2 requests each; medians of {} rounds", to_same.len());
    for (name, times) in ["smallest", "same", "store"].iter().zip(&mut times) {
        println!("{name:>8}: {:.1} us", median(times) * 1e6);
    }
    println!("store to same: {:.3}", median(&mut to_same));
    println!("store to smallest: {:.3}", median(&mut to_smallest));
}

/// Returns the seconds per cycle.
async fn timed(cycle: impl AsyncFn()) -> f64 {
    let clock = BootClock::new();
    let start = clock.now();
    for _ in 0..CYCLES {
        cycle().await;
    }
    clock.now().since(start).as_secs_f64() / f64::from(CYCLES)
}

async fn store_cycle(store: &DynamoDbStore, key: &LeaseKey) {
    let (grant, _) = granted(store.obtain(&claim(key, "holder", TTL)).await.unwrap());
    store.release(&grant, None).await.unwrap();
}

async fn smallest_cycle(client: &Client, key: &LeaseKey) {
    let nonce = AttributeValue::S(fresh_nonce().to_string());
    client
        .update_item()
        .table_name("leases")
        .key("lease_key", AttributeValue::S(key.to_string()))
        .update_expression("SET lessee = :l, nonce = :n, #t = if_not_exists(#t, :zero) + :one")
        .condition_expression("attribute_not_exists(lessee)")
        .expression_attribute_names("#t", "token")
        .expression_attribute_values(":l", AttributeValue::S("holder".to_owned()))
        .expression_attribute_values(":n", nonce.clone())
        .expression_attribute_values(":zero", AttributeValue::N("0".to_owned()))
        .expression_attribute_values(":one", AttributeValue::N("1".to_owned()))
        .return_values(ReturnValue::AllNew)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await
        .unwrap();
    client
        .update_item()
        .table_name("leases")
        .key("lease_key", AttributeValue::S(key.to_string()))
        .update_expression("REMOVE lessee")
        .condition_expression("nonce = :n")
        .expression_attribute_values(":n", nonce)
        .send()
        .await
        .unwrap();
}

async fn same_cycle(client: &Client, key: &LeaseKey) {
    let nonce = fresh_nonce().to_string();
    let token = same_claim(client, key, &nonce).await;
    same_release(client, key, &nonce, token).await;
}

async fn same_claim(client: &Client, key: &LeaseKey, nonce: &str) -> AttributeValue {
    let n = |number: u64| AttributeValue::N(number.to_string());
    let now = lease_core::store::micros_since_1970();
    let values = [
        (":passed", n(now / 1000)),
        (":null", s("NULL")),
        (":blank", s(" ")),
        (":over", n(now / 1000)),
        (":nonce", s(nonce)),
        (":max", n((1 << 53) - 1)),
        (":lessee", s("holder")),
        (":start", n(now)),
        (":one", n(1)),
        (":granted", n(0)),
        (":ttl", n(30_000)),
        (":end", n(now / 1000 + 30_000)),
        (":purge", n(now / 1_000_000 + 604_800)),
    ];
    let taken = client
        .update_item()
        .table_name("leases")
        .key("lease_key", s(key.as_str()))
        .update_expression(
            "SET lessee = :lessee, nonce = :nonce, #token = if_not_exists(#token, :start) + :one, \
             beat = :granted, ttl_ms = :ttl, expires_at = :end, purge_at = \
             if_not_exists(lasting, :purge) REMOVE offered_to, reserved_until, former, evicted, \
             deleted",
        )
        .condition_expression(
            "((attribute_not_exists(lessee) OR attribute_type(lessee, :null) OR lessee < :blank) \
             AND (attribute_not_exists(reserved_until) OR offered_to = :lessee OR reserved_until \
             <= :passed) OR expires_at <= :over) AND NOT nonce = :nonce AND \
             (attribute_not_exists(#token) OR #token < :max) AND \
             attribute_not_exists(recordVersionNumber) AND attribute_not_exists(isReleased) AND \
             (attribute_not_exists(lease_key) OR attribute_exists(#token) OR \
             attribute_exists(lasting))",
        )
        .expression_attribute_names("#token", "token")
        .set_expression_attribute_values(Some(
            values.map(|(name, value)| (name.to_owned(), value)).into(),
        ))
        .return_values(ReturnValue::AllNew)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await
        .unwrap();
    taken.attributes.unwrap().remove("token").unwrap()
}

async fn same_release(client: &Client, key: &LeaseKey, nonce: &str, token: AttributeValue) {
    client
        .update_item()
        .table_name("leases")
        .key("lease_key", s(key.as_str()))
        .update_expression("SET former = :lessee REMOVE lessee, expires_at, evicted")
        .condition_expression("nonce = :nonce AND lessee = :lessee AND #token = :token")
        .expression_attribute_names("#token", "token")
        .expression_attribute_values(":lessee", s("holder"))
        .expression_attribute_values(":nonce", s(nonce))
        .expression_attribute_values(":token", token)
        .send()
        .await
        .unwrap();
}

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    *values.get(values.len() / 2).unwrap()
}
