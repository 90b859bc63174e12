//! `lease watch`: prints the changes of keys.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::TryStreamExt;
use lease_core::store::{HeldKey, LockStore};
use lease_core::{Holder, LeaseKey};
use lease_store::AnyStore;
use tokio::time::sleep;

use crate::commands::context::Context;
use crate::exit::{Exit, Failure, sentence};
use crate::output::Record;
use crate::output::messages::say;
use crate::{started, store};

/// Prints the present holders, and then each change, until a signal ends this process.
pub(crate) async fn watch(
    context: &Context,
    prefix: &str,
    interval: Duration,
) -> Result<Exit, Failure> {
    let store = store::open(context.url.as_deref()).await?;
    let mut former = BTreeMap::new();
    let mut is_first = true;
    loop {
        match holders(&store, prefix).await {
            Ok(current) => {
                for (key, holder) in changes(&former, &current) {
                    context.output.print(&record(&key, holder.as_ref()))?;
                }
                former = current;
            }
            // A store that is out of reach for a while must not end a watch.
            Err(error) if error.is_retryable() && !is_first => say(&sentence(&error)),
            Err(error) => return Err(error.into()),
        }
        is_first = false;
        sleep(interval).await;
    }
}

type Holders = BTreeMap<LeaseKey, Holder>;

async fn holders(store: &AnyStore, prefix: &str) -> Result<Holders, lease_core::StoreError> {
    let held: Vec<HeldKey> = store.scan(prefix).try_collect().await?;
    Ok(held.into_iter().map(|held| (held.key, held.holder)).collect())
}

/// Returns the keys whose grant is another one than before, each with its holder.
fn changes(former: &Holders, current: &Holders) -> Vec<(LeaseKey, Option<Holder>)> {
    let freed = former.keys().filter(|key| !current.contains_key(*key));
    let freed = freed.map(|key| (key.clone(), None));
    let is_same = |key, holder: &Holder| {
        former.get(key).is_some_and(|before| {
            before.lessee == holder.lessee
                && (before.token == holder.token || before.token.is_none())
        })
    };
    let granted = current.iter().filter(|(key, holder)| !is_same(*key, holder));
    freed.chain(granted.map(|(key, holder)| (key.clone(), Some(holder.clone())))).collect()
}

fn record(key: &LeaseKey, holder: Option<&Holder>) -> Record {
    let state = if holder.is_some() { "held" } else { "free" };
    let record = Record::new().with("time", started::now().to_string()).with("state", state);
    record.with("key", key.as_str()).with_holder(holder)
}

#[cfg(test)]
mod tests {
    use lease_core::{FencingToken, Lessee};

    use super::*;

    fn holders(of: &[(&str, &str, u64)]) -> Holders {
        let holder = |lessee: &str, token: u64| {
            Holder::new(Lessee::new(lessee).unwrap(), None)
                .named_by(FencingToken::new(token).unwrap())
        };
        of.iter()
            .map(|(key, lessee, token)| (key.parse().unwrap(), holder(lessee, *token)))
            .collect()
    }

    #[test]
    fn changes_are_new_grants_and_freed_keys() {
        let former = holders(&[("a", "one", 1), ("b", "one", 2), ("c", "two", 3)]);
        let current = holders(&[("b", "one", 2), ("c", "two", 4), ("d", "two", 5)]);

        let found = changes(&former, &current);

        let found: Vec<_> = found.iter().map(|(key, to)| (key.as_str(), to.is_some())).collect();
        assert_eq!(found, [("a", false), ("c", true), ("d", true)]);
    }
}
