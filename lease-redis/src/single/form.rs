//! Prepares a server for locks, and converts the records of earlier versions.
//!
//! The hash of a record shows that the key is no lock, but earlier versions let this hash expire after the
//! retention. So each new connection makes the hashes permanent, for one retention after the first connection
//! of this version.

use redis::Value;
use tracing::warn;

use lease_core::{LeaseKey, StoreErrorKind};

use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::scripts::{self, millis};
use crate::single::table::listed_names;

/// Creates the stream of tokens for the first claims, and makes the hashes of all records permanent.
pub(crate) async fn prepare(node: &Node) -> Result<(), ServerFault> {
    if !node.has_locks() {
        return Ok(());
    }
    match prepare_locks(node).await {
        Err(fault) if fault.kind == StoreErrorKind::Throttled => {
            // A server without free memory still extends held leases. The next connection tries again.
            warn!(server = %node.name, %fault, "records of earlier versions were not prepared");
            Ok(())
        }
        done => done,
    }
}

async fn prepare_locks(node: &Node) -> Result<(), ServerFault> {
    node.take_token().await?;
    let form = node.keys.form();
    let mut first = redis::cmd("SET");
    first.arg(&form).arg(2).arg("NX");
    let recent = format!("{form}:recent");
    if node.command(&first).await? == Value::Okay {
        let mut mark = redis::cmd("SET");
        mark.arg(&recent).arg(1).arg("PX").arg(millis(node.retention));
        node.command(&mark).await?;
    } else if node.command(redis::cmd("EXISTS").arg(&recent)).await? != Value::Int(1) {
        return Ok(());
    }
    let mut after = None;
    loop {
        let names = listed_names(node, "", after.as_deref()).await?;
        for name in &names {
            let Ok(key) = LeaseKey::new(name.as_str()) else { continue };
            let keys = [node.keys.lease(&key), node.keys.attributes(&key)];
            node.call_bool(&scripts::KEEP.on(keys)).await?;
        }
        after = names.into_iter().next_back();
        if after.is_none() {
            return Ok(());
        }
    }
}
