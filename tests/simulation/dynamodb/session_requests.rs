//! The number of requests of many leases under one session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_runtime_api::client::http::HttpConnectorFuture;
use futures_util::future::join_all;
use lease_core::conformance::Call;
use lease_core::{Lease, LeaseOptions, Locker, Session};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::dynamodb_model;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::front_end::WORLD_BEGINS;
use super::request::Request;
use super::table::Table;

const MANY: usize = 10_000;

#[tokio::test(start_paused = true)]
async fn ten_thousand_leases_under_session_send_one_heartbeat_per_period() {
    let (server, locker) = server_and_locker();
    let session = Session::start(&locker, &"workers/1".parse().unwrap()).await.unwrap();
    // The first grant of a process needs one more write, which adds the expiry.
    assert_eq!(server.take(), [(Call::Obtain, 1), (Call::Write, 1)].into());

    let mut leases = join_all((0..MANY).map(|number| obtained(&session, number))).await;
    assert_eq!(server.take(), [(Call::Read, MANY), (Call::Obtain, MANY)].into(), "claims");

    sleep(locker.options().heartbeat_period() * 100).await;
    let requests = server.take();
    // A heartbeat follows the previous heartbeat after 85 to 95 % of a period.
    let beats = requests.get(&Call::Heartbeat).copied().unwrap_or_default();
    assert!((100..=118).contains(&beats) && requests.len() == 1, "{requests:?}");
    assert!(leases.iter().all(Lease::is_held));

    drop(join_all(leases.drain(..10).map(Lease::release)).await);
    assert_eq!(server.take(), [(Call::Release, 10)].into(), "releases");
}

async fn obtained(session: &Session, number: usize) -> Lease {
    let key = format!("shards/{number}").parse().unwrap();
    let attempt = session.locker().obtain(&key).await.unwrap();
    attempt.into_lease().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "the time of the service, which is paused")]
fn server_and_locker() -> (Server, Locker) {
    let server = Server { begun: Instant::now(), inside: Arc::default() };
    let answering = server.clone();
    let config = dynamodb_model::config(move |request| {
        HttpConnectorFuture::ready(Ok(answering.answer(request)))
    });
    let store = DynamoDbStore::new(Client::from_conf(config.build()), "leases");
    let options = LeaseOptions::new(Duration::from_secs(30)).unwrap();
    (server, Locker::new(store).with_options(options))
}

#[derive(Clone)]
struct Server {
    begun: Instant,
    inside: Arc<Mutex<(Table, HashMap<Call, usize>)>>,
}

impl Server {
    fn take(&self) -> HashMap<Call, usize> {
        std::mem::take(&mut self.inside.lock().unwrap().1)
    }

    fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let body = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        let request = Request::parse(dynamodb_model::operation(request), &body).unwrap();
        let now = self.begun.elapsed();
        let (status, body) = {
            let (table, requests) = &mut *self.inside.lock().unwrap();
            *requests.entry(request.call()).or_default() += 1;
            served(table, now, &request)
        };
        let mut response = dynamodb_model::response(status, body.to_string());
        let date = DateTime::from_secs((WORLD_BEGINS + now).as_secs().try_into().unwrap());
        response.headers_mut().insert("date", date.fmt(DateTimeFormat::HttpDate).unwrap());
        response
    }
}

fn served(table: &mut Table, now: Duration, request: &Request) -> (u16, Value) {
    match request {
        Request::Write(write) if table.allows(write).unwrap() => {
            (200, json!({ "Attributes": table.apply(now, write).unwrap() }))
        }
        Request::Write(_) => (400, json!({ "__type": "ConditionalCheckFailedException" })),
        Request::Get { key, .. } => {
            let item = table.get(key);
            (200, item.map_or_else(|| json!({}), |item| json!({ "Item": item })))
        }
        Request::Scan { .. } => panic!("no lease lists the table"),
    }
}
