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

/// Opens the application's lease table in the format of the Kinesis Client Library (KCL). Also opens a
/// second table for the workers' rows, because KCL would treat these rows as leases. Creates missing tables.
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

/// Reports that the tables cannot be used.
#[derive(Debug, Error)]
#[error(
    "the tables in DynamoDB, tableName = {name} and {name}{suffix}, {address}, cannot be used",
    suffix = WORKERS_SUFFIX
)]
struct NotReady {
    /// The name of the lease table.
    name: String,
    /// The address of DynamoDB, with the property that sets it.
    address: String,
    source: StoreError,
}
