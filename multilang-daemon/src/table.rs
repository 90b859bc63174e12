//! Where it is kept who reads which shard, and how far.

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use lease_core::StoreError;
use lease_dynamodb::DynamoDbStore;
use lease_kinesis::{Application, KclTable};
use thiserror::Error;
use tokio::try_join;

use crate::failure::Failure;
use crate::properties::Properties;
use crate::settings::Settings;

/// What the table is called: as the properties say, or like the application.
pub(crate) fn name(file: &mut Properties, application: &str) -> String {
    let (key, name, because) = match file.text("tableName") {
        Some(name) => ("tableName", name, ""),
        None => (
            "applicationName",
            application.to_owned(),
            "the table is called like that, unless tableName says otherwise, and ",
        ),
    };
    // DynamoDB takes 255, of which the second table needs some for what is added to its name.
    let longest = 255 - OF_WORKERS.len();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let valid = (3..=longest).contains(&name.len()) && name.bytes().all(allowed);
    // What no application can be called was told of as that.
    let is_told = key == "applicationName" && name.parse::<Application>().is_err();
    if !valid && !is_told {
        file.is_wrong(format!(
            "{key} = {name}: {because}a table's name is 3 to {longest} letters, digits, `_`, `.` \
             and `-`"
        ));
    }
    name
}

/// The application's table, as the Kinesis Client Library keeps it; and one beside it for what that
/// would take for leases. They are made if there are none.
pub(crate) async fn open(client: Client, settings: &Settings) -> Result<KclTable, Failure> {
    let place = settings.dynamodb.told("dynamoDBEndpoint", client.config().region());
    let of_workers = format!("{}{OF_WORKERS}", settings.table);
    let of_workers = DynamoDbStore::new(client.clone(), of_workers);
    let table = KclTable::builder(client, &settings.application, Arc::new(of_workers.clone()))
        .with_table(&settings.table)
        .with_failover_time(settings.options.ttl())
        .with_initial_position(settings.initial)
        .build()
        .map_err(Failure::usage)?;
    let ready = try_join!(table.ensure_table(), of_workers.ensure_table());
    let name = settings.table.clone();
    ready.map_err(|source| Failure::other(NotReady { name, place, source }))?;
    Ok(table)
}

/// Why there are no tables to be had.
#[derive(Debug, Error)]
#[error(
    "the tables in DynamoDB, tableName = {name} and {name}{beside}, {place}, cannot be used",
    beside = OF_WORKERS
)]
struct NotReady {
    /// Of the first: as properties say, or called like the application.
    name: String,
    /// And which key says so.
    place: String,
    source: StoreError,
}

/// What is added to the table's name.
const OF_WORKERS: &str = "-workers";
