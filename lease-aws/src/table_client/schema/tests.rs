//! Tests the creation of a table that becomes active late, in paused time.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::HttpConnectorFuture;
use lease_core::store::{BootClock, Moment};
use lease_test_servers::dynamodb_model;

use super::*;
use crate::table_client::{Advice, Table};

/// A server whose table becomes active `activation` after its creation. Records the polls.
#[derive(Debug, Clone)]
struct SlowTable {
    activation: Duration,
    created: Arc<Mutex<Option<Moment>>>,
    polls: Arc<Mutex<Vec<Moment>>>,
}

impl SlowTable {
    fn active_after(activation: Duration) -> Self {
        Self { activation, created: Arc::default(), polls: Arc::default() }
    }

    fn client(&self) -> TableClient {
        let server = self.clone();
        let config = dynamodb_model::config(move |request| {
            let (status, body) = server.serve(dynamodb_model::operation(request));
            HttpConnectorFuture::ready(Ok(dynamodb_model::response(status, body)))
        });
        let client = Client::from_conf(config.build());
        let (name, key) = ("leases".to_owned(), "lease_key".to_owned());
        let advice = Advice { missing: "make it", other_key: "use another" };
        let table = Table { name, key, advice };
        TableClient::new(client, table, Duration::from_secs(3))
    }

    fn serve(&self, operation: &str) -> (u16, String) {
        let now = BootClock::new().now();
        if operation == "CreateTable" {
            *self.created.lock().unwrap() = Some(now);
            return (200, "{}".to_owned());
        }
        assert_eq!(operation, "DescribeTable");
        self.polls.lock().unwrap().push(now);
        let Some(created) = *self.created.lock().unwrap() else {
            return (400, r#"{ "__type": "ResourceNotFoundException" }"#.to_owned());
        };
        let status = if now.since(created) < self.activation { "CREATING" } else { "ACTIVE" };
        let table = format!(
            r#"{{ "Table": {{
                "TableStatus": "{status}",
                "KeySchema": [{{ "AttributeName": "lease_key", "KeyType": "HASH" }}],
                "AttributeDefinitions": [
                    {{ "AttributeName": "lease_key", "AttributeType": "S" }}
                ]
            }} }}"#
        );
        (200, table)
    }

    fn pauses(&self) -> Vec<Duration> {
        let polls = self.polls.lock().unwrap();
        polls.windows(2).map(|two| two[1].since(two[0])).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_between_polls_grow_to_half_a_second() {
    let server = SlowTable::active_after(Duration::from_secs(10));

    server.client().ensure_table(&BootClock::new()).await.unwrap();

    let pauses: Vec<_> = server.pauses().iter().map(Duration::as_millis).collect();
    let (growing, longest) = pauses.split_at(6);
    assert_eq!(growing, [10, 20, 40, 80, 160, 320]);
    assert!(longest.iter().all(|pause| *pause == 500), "{longest:?}");
    // The pauses of 500 ms fill the rest of the 10 s. The first poll after the activation is the last poll.
    assert_eq!(longest.len(), 19);
}

#[tokio::test(start_paused = true)]
async fn inactive_table_is_an_error_after_five_minutes() {
    let server = SlowTable::active_after(Duration::from_hours(1));

    let (clock, client) = (BootClock::new(), server.client());
    let start = clock.now();
    let error = client.ensure_table(&clock).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(text, "table leases is not active after 300s");
    let took = clock.now().since(start);
    assert!(
        took >= ACTIVATION_TIMEOUT && took <= ACTIVATION_TIMEOUT + LONGEST_PAUSE * 2,
        "{took:?}"
    );
}
