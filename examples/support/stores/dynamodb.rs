//! A store in a DynamoDB on this machine or network, such as `dynalite` or DynamoDB Local.
//!
//! On AWS, a client takes its region and credentials from `aws-config`, and speaks TLS; the store
//! is made of it in the same way.

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::{Client, Config};
use lease_dynamodb::DynamoDbStore;

use crate::Failure;

/// Opens the table at `place`, which reads `HOST:PORT/TABLE`, and makes it if it is not there.
pub(crate) async fn open(place: &str) -> Result<DynamoDbStore, Failure> {
    let Some((host, table)) = place.split_once('/').filter(|(_, table)| !table.is_empty()) else {
        return Err(Failure::from(format!(
            "store \"dynamodb://{place}\" names no table: it is \"dynamodb://HOST:PORT/TABLE\""
        )));
    };
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .endpoint_url(format!("http://{host}"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();

    let store = DynamoDbStore::new(Client::from_conf(config), table);
    store.ensure_table().await?;
    Ok(store)
}
