//! Opens a store in a DynamoDB server on this machine or network: `dynalite` or DynamoDB Local.
//!
//! On AWS, `aws-config` supplies a client with region, credentials and TLS, which
//! `DynamoDbStore::new` takes in the same way.

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::{Client, Config};
use lease_dynamodb::DynamoDbStore;

use crate::Failure;

/// Creates the table at `location`, `HOST:PORT/TABLE`, if the table does not exist.
pub(crate) async fn open(location: &str) -> Result<DynamoDbStore, Failure> {
    let Some((host, table)) = location.split_once('/').filter(|(_, table)| !table.is_empty())
    else {
        return Err(format!(
            "store \"dynamodb://{location}\" has no table name: use \
             \"dynamodb://HOST:PORT/TABLE\""
        )
        .into());
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
