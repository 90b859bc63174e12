//! Opens the lease table, and the table of the workers' rows.

use std::sync::Arc;

use lease_dynamodb::DynamoDbStore;
use lease_kcl::KclTable;
use tokio::try_join;

use super::clients::Clients;
use super::patience::{NotReady, with_patience};
use crate::configuration::settings::Settings;
use crate::configuration::table::WORKERS_SUFFIX;
use crate::failure::Failure;

/// A second table has the workers' rows, because KCL would treat these rows as leases.
pub(crate) async fn open(clients: &Clients, settings: &Settings) -> Result<KclTable, Failure> {
    let client = clients.dynamodb.clone();
    let address = settings.dynamodb.describe("dynamoDBEndpoint", client.config().region());
    let workers = format!("{}{WORKERS_SUFFIX}", settings.table);
    let workers = DynamoDbStore::new(client.clone(), workers);
    let table = KclTable::builder(client, &settings.application, Arc::new(workers.clone()))
        .with_table(&settings.table)
        .with_failover_time(settings.options.ttl())
        .with_initial_position(settings.initial)
        .build()
        .map_err(Failure::usage)?;
    let make_ready = || async {
        let ready = try_join!(table.ensure_table(), workers.ensure_table());
        let (name, address) = (settings.table.clone(), address.clone());
        ready.map(drop).map_err(|source| NotReady { name, address, source })
    };
    // The future is boxed, because it is large and runs only once.
    Box::pin(with_patience(make_ready, || clients.credentials())).await?;
    Ok(table)
}
