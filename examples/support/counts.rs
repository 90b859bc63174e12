//! What `exporter put` collects: counts under keys such as `tea/hour`, and what becomes of them.

use std::fmt;
use std::sync::Arc;

use lease_scheduler::export::{BadEvent, BadEvents, Entry, Pipeline};
use serde_json::{Map, Value};

/// Makes an event of each count. Weeks and eternities are left out, as is whatever is no count: that
/// is told by `tell`.
pub fn pipeline(tell: Arc<dyn Fn(String) + Send + Sync>) -> Pipeline {
    Pipeline::new(parse)
        .without_keys_containing(["/week", "/eternity"])
        .with_bad_events(Arc::new(ToldBadEvents { tell }))
}

fn parse(entry: &Entry, value: &str) -> Result<Map<String, Value>, String> {
    let Some((item, period)) = entry.key.rsplit_once('/') else {
        return Err(format!("{:?} is not ITEM/PERIOD", entry.key));
    };
    if !PERIODS.contains(&period) {
        return Err(format!("period {period:?} is not known: it is one of {PERIODS:?}"));
    }
    let count: u64 = value.parse().map_err(|_no_number| format!("{value:?} is no count"))?;
    let body: [(&str, Value); 3] =
        [("item", item.into()), ("period", period.into()), ("count", count.into())];
    Ok(body.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}

struct ToldBadEvents {
    tell: Arc<dyn Fn(String) + Send + Sync>,
}

impl BadEvents for ToldBadEvents {
    fn report(&self, entry: &Entry, why: &BadEvent) {
        let beginning: Option<String> =
            entry.value.as_ref().map(|value| value.chars().take(60).collect());
        (self.tell)(format!("leaves out {}, {beginning:?}: {why}", entry.key));
    }
}

impl fmt::Debug for ToldBadEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToldBadEvents").finish_non_exhaustive()
    }
}

const PERIODS: [&str; 4] = ["minute", "hour", "day", "month"];
