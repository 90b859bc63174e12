//! The notices of a session: the shards whose rows its worker has changed, in the worker's own row.

use std::collections::VecDeque;
use std::time::Duration;

use lease_core::store::LeaseRecord;
use lease_core::{Change, LeaseKey, Value};
use tokio::time::Instant;

use crate::names::Application;

/// The worker's own notices. The row keeps the latest notices until no notice was added for some time, so
/// that heartbeats write a short row.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// The number of the last notice. Notices have the numbers 1, 2, 3 …
    last: i64,
    /// The shards of the latest notices, the last one at the end.
    shards: VecDeque<String>,
    added: Option<Instant>,
}

/// The counter of a session when the other workers read the row: at most this number. A row with a smaller one is
/// older than the counter, because an earlier write has arrived late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowCount(pub(crate) i64);

/// The notices that another worker's row contains.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Noticed {
    pub(crate) last: i64,
    /// `None` if the row has no such number.
    pub(crate) count: Option<RowCount>,
    /// The shards of the notices after the one that the reader knows. `None` if the row no longer has all of
    /// them.
    pub(crate) shards: Option<Vec<LeaseKey>>,
}

impl Notices {
    pub(crate) fn add(&mut self, application: &Application, shard: &LeaseKey, now: Instant) {
        let Some(shard) = shard.as_str().strip_prefix(&application.shards_prefix()) else { return };
        self.last = self.last.saturating_add(1);
        self.shards.push_back(shard.to_owned());
        if self.shards.len() > MOST {
            self.shards.pop_front();
        }
        self.added = Some(now);
    }

    /// Forgets notices that all other workers have had the time to read. Returns whether the row must be
    /// written.
    pub(crate) fn forget_old(&mut self, now: Instant, age: Duration) -> bool {
        let are_old = self.added.is_some_and(|added| now >= added + age);
        if are_old {
            self.added = None;
            self.shards.clear();
        }
        are_old
    }

    pub(crate) fn write(&self, change: Change, RowCount(count): RowCount) -> Change {
        let shards = self.shards.iter().map(|shard| Value::from(shard.as_str())).collect();
        change.set(LAST, self.last).set(SHARDS, Value::List(shards)).set(COUNT, count)
    }
}

impl Noticed {
    /// Reads the notices after number `seen`.
    pub(crate) fn after(seen: i64, record: &LeaseRecord, application: &Application) -> Self {
        let number = |name| record.attributes.get(name).and_then(Value::as_i64);
        let (last, count) = (last(record), number(COUNT).map(RowCount));
        let Some(missed) = usize::try_from(last - seen).ok() else {
            return Self { last, count, shards: None };
        };
        let kept: &[Value] = match record.attributes.get(SHARDS) {
            Some(Value::List(kept)) => kept,
            _ => &[],
        };
        let prefix = application.shards_prefix();
        let key = |value: &Value| LeaseKey::new(format!("{prefix}{}", value.as_text()?)).ok();
        let first = kept.len().checked_sub(missed);
        let shards = first.and_then(|first| kept.get(first..)?.iter().map(key).collect());
        Self { last, count, shards }
    }
}

/// The number of the last notice in a row, or 0.
pub(crate) fn last(record: &LeaseRecord) -> i64 {
    record.attributes.get(LAST).and_then(Value::as_i64).unwrap_or(0)
}

const LAST: &str = "noticed";
const SHARDS: &str = "notices";
const COUNT: &str = "count";

/// More notices at once are as long as the rows of a large fleet, and the readers list all rows instead.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use lease_core::Attributes;

    use super::*;
    use crate::time::now;

    fn application() -> Application {
        "shop".parse().unwrap()
    }

    fn key(number: usize) -> LeaseKey {
        LeaseKey::new(format!("shop/shards/shard-{number}")).unwrap()
    }

    fn noticing(shards: impl IntoIterator<Item = usize>) -> Notices {
        let mut notices = Notices::default();
        for shard in shards {
            notices.add(&application(), &key(shard), now());
        }
        notices
    }

    fn after(seen: i64, notices: &Notices) -> Noticed {
        let mut attributes = Attributes::new();
        notices.write(Change::new(), RowCount(1)).apply(&mut attributes);
        let worker = LeaseKey::new("shop/workers/a").unwrap();
        let record = LeaseRecord::new(worker, None, None, attributes);
        Noticed::after(seen, &record, &application())
    }

    #[test]
    fn reader_gets_notices_after_the_last_one_it_knows() {
        let notices = noticing([7, 8, 7]);

        assert_eq!(after(1, &notices).shards, Some(vec![key(8), key(7)]));
        assert_eq!(after(3, &notices).shards, Some(Vec::new()));
    }

    #[test]
    fn reader_that_is_too_late_learns_of_the_gap() {
        let many = noticing(0..=MOST);
        assert_eq!(after(0, &many).shards, None);
        assert_eq!(after(1, &many).shards.map(|shards| shards.len()), Some(MOST));

        let mut old = noticing([7, 8]);
        assert!(!old.forget_old(now(), Duration::from_secs(9)));
        assert!(old.forget_old(now() + Duration::from_secs(9), Duration::from_secs(9)));
        assert_eq!(after(1, &old), Noticed { last: 2, count: Some(RowCount(1)), shards: None });
        assert_eq!(after(2, &old).shards, Some(Vec::new()));
    }

    #[test]
    fn numbers_that_went_back_are_a_gap() {
        assert_eq!(after(4, &noticing([7])).shards, None);
    }
}
