//! `lease who`: shows the holder of a key.

use lease_core::{LeaseKey, LeaseOptions};

use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::store;

pub(crate) async fn who(context: &Context, key: &LeaseKey) -> Result<Exit, Failure> {
    let store = store::open(context.url.as_deref()).await?;
    let holder = store::locker(store, LeaseOptions::default())?.holder(key).await?;
    let record = Record::new().with("key", key.as_str()).with_holder(holder.as_ref());
    context.output.list(&[record])?;
    Ok(if holder.is_some() { Exit::SUCCESS } else { Exit::NO })
}
