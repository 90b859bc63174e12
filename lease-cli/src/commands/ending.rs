//! `lease evict` and `lease release`: end the lease of another process.

use std::time::Duration;

use lease_core::store::LockStore;
use lease_core::{GrantId, Holder, LeaseKey, LeaseOptions, StoreErrorKind};
use lease_store::AnyStore;
use tokio::time::sleep;

use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::output::messages::say;
use crate::store;

/// Ends the lease of another process, and says what follows.
pub(crate) async fn evict(
    context: &Context,
    key: &LeaseKey,
    grant: String,
) -> Result<Exit, Failure> {
    let store = store::open(context.url.as_deref()).await?;
    let locker = store::locker(store.clone(), LeaseOptions::default())?;
    let holder = locker.holder(key).await?;
    if !end(&store, key, &GrantId::new(grant)).await? {
        return Ok(Exit::NO);
    }
    let left = holder.and_then(|holder| holder.expires_in);
    let within = left.map(|left| format!("within {} s", left.as_secs() + 1));
    say(&format!(
        "the holder stops at its next heartbeat and then frees {key}. If it is dead, {key} is free {}",
        within.as_deref().unwrap_or("when its ttl has passed")
    ));
    context.output.print(&Record::new().with("evicted", key.as_str()).with_time("within", left))?;
    Ok(Exit::SUCCESS)
}

/// Ends the lease of a dead process, and waits until its key is free.
pub(crate) async fn release(
    context: &Context,
    key: &LeaseKey,
    grant: String,
) -> Result<Exit, Failure> {
    let store = store::open(context.url.as_deref()).await?;
    let locker = store::locker(store.clone(), LeaseOptions::default())?;
    let grant = GrantId::new(grant);
    // Before the end, after which another process may obtain the key.
    let holder = locker.holder(key).await?;
    let is_same = |holder: &Holder| holder.grant.as_ref() == Some(&grant);
    let token = holder.filter(is_same).and_then(|holder| holder.token);
    if !end(&store, key, &grant).await? {
        return Ok(Exit::NO);
    }
    loop {
        match locker.holder(key).await? {
            Some(holder) if is_same(&holder) || (token.is_some() && holder.token == token) => {
                // At the end of the ttl, which the store measures.
                sleep(holder.expires_in.unwrap_or(POLL).clamp(SHORTEST_POLL, POLL)).await;
            }
            _ => break,
        }
    }
    context.output.print(&Record::new().with("released", key.as_str()))?;
    Ok(Exit::SUCCESS)
}

/// Evicts `grant`. Returns false, with a message, if it does not hold the key.
async fn end(store: &AnyStore, key: &LeaseKey, grant: &GrantId) -> Result<bool, Failure> {
    let evicted = match store.evict(key, grant).await {
        Err(error) if error.kind() == StoreErrorKind::Unsupported => {
            let text = "this store cannot evict: stop the holder, or wait for its ttl";
            return Err(Failure::new(Exit::CONFIGURATION, text));
        }
        evicted => evicted?,
    };
    if !evicted {
        say(&format!("grant {grant} does not hold {key}: `lease who {key}` shows the present one"));
    }
    Ok(evicted)
}

const POLL: Duration = Duration::from_millis(500);
const SHORTEST_POLL: Duration = Duration::from_millis(5);
