//! Hands a key on to the first claim of its queue.

use std::sync::Arc;

use lease_core::LeaseKey;
use lease_core::store::Nonce;

use crate::connection::database::{Database, Lane};
use crate::error::ServerFault;
use crate::reply::column;
use crate::statements;

/// Returns whether claims are still queued for the key.
pub(crate) async fn hand_on(
    database: &Arc<Database>,
    key: &LeaseKey,
    nonce: Nonce,
    token: Option<i64>,
) -> Result<bool, ServerFault> {
    let call = database.statements.call(statements::HAND_ON).text(key.as_str()).nonce(nonce);
    let call = call.optional_number(token).text(database.statements.table().channel());
    let rows = database.run(Lane::Holders, call.text(database.lock_timeout())).await?;
    rows.first().map_or(Ok(false), |row| column(row, "waits"))
}
