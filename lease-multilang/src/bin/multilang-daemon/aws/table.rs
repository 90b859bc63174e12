//! Opens the lease table, and the table of the workers' rows.

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use lease_core::StoreError;
use lease_dynamodb::DynamoDbStore;
use lease_kcl::KclTable;
use thiserror::Error;
use tokio::try_join;

use crate::configuration::settings::Settings;
use crate::configuration::table::WORKERS_SUFFIX;
use crate::failure::Failure;

/// A second table has the workers' rows, because KCL would treat these rows as leases.
pub(crate) async fn open(client: Client, settings: &Settings) -> Result<KclTable, Failure> {
    let address = settings.dynamodb.describe("dynamoDBEndpoint", client.config().region());
    let workers = format!("{}{WORKERS_SUFFIX}", settings.table);
    let workers = DynamoDbStore::new(client.clone(), workers);
    let table = KclTable::builder(client, &settings.application, Arc::new(workers.clone()))
        .with_table(&settings.table)
        .with_failover_time(settings.options.ttl())
        .with_initial_position(settings.initial)
        .build()
        .map_err(Failure::usage)?;
    let ready = try_join!(table.ensure_table(), workers.ensure_table());
    let name = settings.table.clone();
    ready.map_err(|source| Failure::other(NotReady { name, address, source }))?;
    Ok(table)
}

#[derive(Debug, Error)]
#[error(
    "the tables in DynamoDB, tableName = {name} and {name}{suffix}, {address}, cannot be used",
    suffix = WORKERS_SUFFIX
)]
struct NotReady {
    name: String,
    address: String,
    source: StoreError,
}
