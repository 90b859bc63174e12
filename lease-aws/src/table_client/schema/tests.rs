//! A table that takes its time to be made, in paused time.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, HttpClient, Region, RuntimeComponents};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_types::body::SdkBody;
use lease_core::{BootClock, Moment};

use super::*;
use crate::parts::{Advice, Table};

/// A table that is active so long after it was made, and when it was looked at.
#[derive(Debug, Clone)]
struct Slow {
    takes: Duration,
    made: Arc<Mutex<Option<Moment>>>,
    looks: Arc<Mutex<Vec<Moment>>>,
}

impl Slow {
    fn to_be_made_in(takes: Duration) -> Self {
        Self { takes, made: Arc::default(), looks: Arc::default() }
    }

    fn requests(&self) -> Requests {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .endpoint_url("http://dynamodb.model")
            .allow_no_auth()
            .http_client(self.clone())
            .retry_config(RetryConfig::disabled())
            .build();
        let (name, key) = ("leases".to_owned(), "lease_key".to_owned());
        let advice = Advice { missing: "make it", other_key: "use another" };
        let table = Table { name, key, advice };
        Requests::new(Client::from_conf(config), table, Duration::from_secs(3))
    }

    fn serve(&self, operation: &str) -> (u16, String) {
        let now = BootClock::new().now();
        if operation == "CreateTable" {
            *self.made.lock().unwrap() = Some(now);
            return (200, "{}".to_owned());
        }
        assert_eq!(operation, "DescribeTable");
        self.looks.lock().unwrap().push(now);
        let Some(made) = *self.made.lock().unwrap() else {
            return (400, r#"{ "__type": "ResourceNotFoundException" }"#.to_owned());
        };
        let status = if now.since(made) < self.takes { "CREATING" } else { "ACTIVE" };
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

    /// Between each look and the next.
    fn pauses(&self) -> Vec<Duration> {
        let looks = self.looks.lock().unwrap();
        looks.windows(2).map(|two| two[1].since(two[0])).collect()
    }
}

impl HttpClient for Slow {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Slow {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let (status, body) = self.serve(target.trim_start_matches("DynamoDB_20120810."));
        let response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
        HttpConnectorFuture::ready(Ok(response))
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_being_made_is_looked_at_after_pauses_that_grow_to_half_a_second() {
    let slow = Slow::to_be_made_in(Duration::from_secs(10));

    slow.requests().ensure_table(&BootClock::new()).await.unwrap();

    let pauses: Vec<_> = slow.pauses().iter().map(Duration::as_millis).collect();
    let (growing, longest) = pauses.split_at(6);
    assert_eq!(growing, [10, 20, 40, 80, 160, 320]);
    assert!(longest.iter().all(|pause| *pause == 500), "{longest:?}");
    // What is left of 10 s after the growing ones, and no look beyond.
    assert_eq!(longest.len(), 19);
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_never_active_is_given_up_after_five_minutes() {
    let slow = Slow::to_be_made_in(Duration::from_hours(1));

    let (clock, requests) = (BootClock::new(), slow.requests());
    let began = clock.now();
    let error = requests.ensure_table(&clock).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(text, "table leases is not active after 300s");
    let took = clock.now().since(began);
    assert!(took >= PATIENCE && took <= PATIENCE + LONGEST_PAUSE * 2, "{took:?}");
}
