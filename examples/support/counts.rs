//! The pipeline of `exporter`: turns counts under keys such as `tea/hour` into events.

use std::fmt;
use std::sync::Arc;

use lease_export::{BadEvent, BadEvents, Entry, Pipeline};
use serde_json::{Map, Value};

/// Makes one event of each count. A filter drops keys with `/week` or `/eternity`. `print` reports
/// entries that are not counts.
pub fn pipeline(print: Arc<dyn Fn(String) + Send + Sync>) -> Pipeline {
    Pipeline::new(parse)
        .without_keys_containing(["/week", "/eternity"])
        .with_bad_events(Arc::new(PrintedBadEvents { print }))
}

fn parse(entry: &Entry, value: &str) -> Result<Map<String, Value>, String> {
    let Some((item, period)) = entry.key.rsplit_once('/') else {
        return Err(format!("{:?} is not ITEM/PERIOD", entry.key));
    };
    if !PERIODS.contains(&period) {
        return Err(format!("period {period:?} is not one of {PERIODS:?}"));
    }
    let count: u64 = value.parse().map_err(|_no_number| format!("{value:?} is not a count"))?;
    let body: [(&str, Value); 3] =
        [("item", item.into()), ("period", period.into()), ("count", count.into())];
    Ok(body.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}

struct PrintedBadEvents {
    print: Arc<dyn Fn(String) + Send + Sync>,
}

impl BadEvents for PrintedBadEvents {
    fn report(&self, entry: &Entry, why: &BadEvent) {
        let start: Option<String> =
            entry.value.as_ref().map(|value| value.chars().take(60).collect());
        (self.print)(format!("drops {}, {start:?}: {why}", entry.key));
    }
}

impl fmt::Debug for PrintedBadEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrintedBadEvents").finish_non_exhaustive()
    }
}

const PERIODS: [&str; 4] = ["minute", "hour", "day", "month"];
