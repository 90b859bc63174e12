//! Refuses servers and tables that would lose leases, and warns of settings that may lose leases.

use std::time::Duration;

use tokio_postgres::Row;
use tracing::warn;

use crate::connection::address::Address;
use crate::connection::database::{Database, Lane};
use crate::error::{ALLOW, CREATE, ServerFault};
use crate::reply::column;
use crate::statements;

/// Returns the lock timeout of the session, in milliseconds. Zero means none.
pub(crate) async fn check(database: &Database, address: &Address) -> Result<i64, ServerFault> {
    let row = read(database).await?;
    let name = &database.name;
    checked_server(name, &row)?;
    checked_table(name, &database.statements.table().quoted(), &row)?;
    checked_durability(name, address.user(), &row)?;
    column(&row, "lock_timeout")
}

/// Whether the table lacks only columns that later versions have added.
pub(crate) async fn is_of_earlier_version(database: &Database) -> Result<bool, ServerFault> {
    Ok(is_earlier(&column::<Vec<String>>(&read(database).await?, "missing_columns")?))
}

fn is_earlier(missing: &[String]) -> bool {
    !missing.is_empty() && missing.iter().all(|column| ADDED.contains(&column.as_str()))
}

async fn read(database: &Database) -> Result<Row, ServerFault> {
    let table = database.statements.table().quoted();
    let call = database.statements.call(statements::CHECK).text(table);
    let rows = database.request(Lane::Holders, &call, database.timeout.max(LIMIT)).await?;
    let no_answer = || ServerFault::unavailable(format!("{} returned no row", database.name));
    rows.into_iter().next().ok_or_else(no_answer)
}

fn checked_server(name: &str, row: &Row) -> Result<(), ServerFault> {
    let version: i64 = column(row, "version")?;
    if version < MIN_VERSION {
        return Err(ServerFault::misconfigured(format!(
            "{name} has version {}: leases need PostgreSQL {} or later",
            version / 10_000,
            MIN_VERSION / 10_000
        )));
    }
    if column(row, "read_only")? {
        return Err(ServerFault::unavailable(format!(
            "{name} is a standby or read-only: give the URL of the primary, or of all servers: \
             `postgres://a,b/database`"
        )));
    }
    let encoding: String = column(row, "encoding")?;
    if encoding != "UTF8" {
        let database: String = column(row, "database")?;
        return Err(ServerFault::misconfigured(format!(
            "{name}: the database {database:?} has the encoding {encoding}: create one with \
             `ENCODING 'UTF8'`"
        )));
    }
    Ok(())
}

fn checked_table(name: &str, table: &str, row: &Row) -> Result<(), ServerFault> {
    if column::<Option<String>>(row, "found")?.is_none() {
        return Err(ServerFault::misconfigured(format!("{name} has no table {table}{CREATE}")));
    }
    let missing: Vec<String> = column(row, "missing_rights")?;
    if !missing.is_empty() {
        let role: String = column(row, "role")?;
        return Err(ServerFault::denied(format!(
            "{name}: the role {role:?} lacks a right to the table: `GRANT {} ON {table} TO \
             \"{role}\"`{ALLOW}",
            missing.join(", ")
        )));
    }
    let missing: Vec<String> = column(row, "missing_columns")?;
    if is_earlier(&missing) {
        return Err(ServerFault::misconfigured(format!(
            "{name}: the table {table} was made by an earlier version of lease-postgres and lacks the columns {}: \
             add them by `create_table`, or by the SQL in the section \"An older table\" of lease-postgres' README",
            missing.join(", ")
        )));
    }
    if !missing.is_empty() {
        return Err(ServerFault::misconfigured(format!(
            "{name}: the table {table} lacks the columns {}: it was not made by this version of \
             lease-postgres",
            missing.join(", ")
        )));
    }
    match column::<String>(row, "persistence")?.as_str() {
        "p" => Ok(()),
        "u" => Err(ServerFault::misconfigured(format!(
            "{name}: the table {table} is UNLOGGED, so a crash of the server forgets all leases: \
             `ALTER TABLE {table} SET LOGGED`"
        ))),
        _ => Err(ServerFault::misconfigured(format!(
            "{name}: the table {table} is temporary, so no other connection sees it: drop it"
        ))),
    }
}

fn checked_durability(name: &str, user: &str, row: &Row) -> Result<(), ServerFault> {
    let setting = |name| column::<String>(row, name);
    if setting("synchronous_commit")? == "off" {
        return Err(ServerFault::misconfigured(format!(
            "{name} has `synchronous_commit = off`, so a crash of the server forgets its last \
             grants: `ALTER ROLE \"{user}\" SET synchronous_commit = on`"
        )));
    }
    for unsafe_if_off in ["fsync", "full_page_writes"] {
        if setting(unsafe_if_off)? == "off" {
            warn!(
                server = name,
                setting = unsafe_if_off,
                "setting is off, so a power cut loses leases: set it to on"
            );
        }
    }
    let isolation = setting("isolation")?;
    if isolation != "read committed" {
        warn!(
            server = name,
            %isolation,
            "isolation level makes concurrent requests fail and repeat: set \
             default_transaction_isolation of the role to read committed"
        );
    }
    Ok(())
}

/// The columns that `upgrade.sql` adds.
const ADDED: [&str; 3] = ["parent", "parent_token", "queue"];

/// A new connection takes several round trips.
const LIMIT: Duration = Duration::from_secs(10);

/// PostgreSQL 14, the oldest version that is still maintained.
const MIN_VERSION: i64 = 140_000;
