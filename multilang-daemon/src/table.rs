//! Where it is kept who reads which shard, and how far.

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use lease_core::LeaseTable;
use lease_dynamodb::DynamoDbStore;

use crate::failure::Failure;
use crate::settings::Settings;

/// The application's table, which is made if there is none.
pub(crate) async fn open(
    client: Client,
    settings: &Settings,
) -> Result<Arc<dyn LeaseTable>, Failure> {
    let store = DynamoDbStore::new(client, &settings.table);
    store.ensure_table().await.map_err(Failure::other)?;
    Ok(Arc::new(store))
}
