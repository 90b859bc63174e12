//! Hands a key on to the first claim of its queue.

use std::sync::Arc;

use lease_core::LeaseKey;
use lease_core::store::Nonce;

use crate::connection::database::{Database, Lane};
use crate::error::ServerFault;
use crate::reply::column;
use crate::statements;

/// Without a token, the claim leaves the queue. Returns whether claims are still queued for the key.
pub(crate) async fn hand_on(
    database: &Arc<Database>,
    key: &LeaseKey,
    nonce: Nonce,
    token: Option<i64>,
) -> Result<bool, ServerFault> {
    if let Some(token) = token
        && let Some(waits) = hand_to_first(database, key, nonce, token).await?
    {
        return Ok(waits);
    }
    let call = database.statements.call(statements::HAND_ON).text(key.as_str()).nonce(nonce);
    let call = call.optional_number(token).text(database.statements.table().channel());
    // Many waiters may leave at once, while another session has locked the row.
    let lane = if token.is_some() { Lane::Holders } else { Lane::Claims };
    let rows = database.run(lane, call.text(database.lock_timeout())).await?;
    rows.first().map_or(Ok(false), |row| column(row, "waits"))
}

/// Returns `None` if no waiter was granted the key.
async fn hand_to_first(
    database: &Arc<Database>,
    key: &LeaseKey,
    nonce: Nonce,
    token: i64,
) -> Result<Option<bool>, ServerFault> {
    let call = database.statements.call(statements::HAND_TO_FIRST).text(key.as_str()).nonce(nonce);
    let call = call.number(token).text(database.lock_timeout());
    let rows = database.run(Lane::Holders, call).await?;
    rows.first().map(|row| column(row, "waits")).transpose()
}
