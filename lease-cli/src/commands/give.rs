//! `lease give`: releases the key of a hand-over.

use lease_core::LeaseOptions;

use crate::arguments::HandOverSource;
use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::output::messages::say;
use crate::store;

pub(crate) async fn give(context: &Context, text: HandOverSource) -> Result<Exit, Failure> {
    let hand_over =
        text.read().map_err(|error| Failure::new(Exit::USAGE, format!("stdin: {error}")))?;
    let key = hand_over.key().clone();
    let store = store::open(context.url.as_deref()).await?;
    let locker = store::locker(store, LeaseOptions::default())?;
    let Some(lease) = locker.resume(hand_over).await? else {
        say(&format!("the lease on {key} has ended before: its ttl has passed, or it was given"));
        return Ok(Exit::LOST);
    };
    lease.release().await?;
    context.output.print(&Record::new().with("released", key.as_str()))?;
    Ok(Exit::SUCCESS)
}
