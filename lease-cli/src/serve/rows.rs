//! The rows of a view, and what has changed since a browser got them.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use lease_core::store::{BootClock, Clock, Moment};
use serde_json::{Value, json};

/// The rows of a view at one time.
#[derive(Debug, Default)]
pub(super) struct Rows {
    at: Milliseconds,
    by_id: BTreeMap<String, Row>,
    whole: OnceLock<Bytes>,
}

/// One row. The view decides what its fields are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// When the row ends, if nothing extends it.
    deadline: Option<Milliseconds>,
    fields: Value,
}

/// Milliseconds since the first reading. A browser computes differences to [`Rows::at`], so its clock does not matter.
pub(super) type Milliseconds = u64;

impl Rows {
    /// Rows that are read from now on.
    pub(super) fn now() -> Self {
        Self { at: now(), ..Self::default() }
    }

    /// Adds a row that ends after `left`.
    pub(super) fn add(&mut self, id: &str, left: Option<Duration>, fields: Value) {
        let deadline = left.map(|left| self.at.saturating_add(milliseconds(left)));
        self.by_id.insert(id.to_owned(), Row { deadline, fields });
    }

    /// When the rows were read.
    pub(super) fn at(&self) -> Milliseconds {
        self.at
    }

    /// Keeps the deadlines of `former` that differ only by the time of the read. Otherwise, each row changes with each
    /// read.
    pub(super) fn steadied_by(mut self, former: &Self) -> Self {
        for (id, row) in &mut self.by_id {
            let known = former.by_id.get(id).and_then(|row| row.deadline);
            if let (Some(deadline), Some(known)) = (row.deadline, known)
                && deadline.abs_diff(known) < JITTER
            {
                row.deadline = Some(known);
            }
        }
        self
    }

    /// Returns all rows as JSON, which all browsers share.
    pub(super) fn whole(&self) -> Bytes {
        let text = || {
            let rows: Vec<_> = self.by_id.iter().map(json_of).collect();
            json!({ "at": self.at, "whole": true, "rows": rows, "gone": [] }).to_string().into()
        };
        self.whole.get_or_init(text).clone()
    }

    /// Returns the rows that differ from `former` as JSON. `None` if none does.
    pub(super) fn since(&self, former: &Self) -> Option<String> {
        let is_new = |(id, row): &(&String, &Row)| former.by_id.get(*id) != Some(*row);
        let rows: Vec<_> = self.by_id.iter().filter(is_new).map(json_of).collect();
        let gone: Vec<_> = former.by_id.keys().filter(|id| !self.by_id.contains_key(*id)).collect();
        if rows.is_empty() && gone.is_empty() {
            return None;
        }
        Some(json!({ "at": self.at, "whole": false, "rows": rows, "gone": gone }).to_string())
    }
}

/// `[id, deadline, fields]`.
fn json_of((id, row): (&String, &Row)) -> Value {
    json!([id, row.deadline, row.fields])
}

fn now() -> Milliseconds {
    static FIRST: LazyLock<Moment> = LazyLock::new(|| BootClock::new().now());
    let first = *FIRST;
    milliseconds(BootClock::new().now().since(first))
}

fn milliseconds(time: Duration) -> Milliseconds {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// People do not see a quarter of a second in a time that is left.
const JITTER: Milliseconds = 250;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(at: Milliseconds, of: &[(&str, Milliseconds, &str)]) -> Rows {
        let mut rows = Rows { at, ..Rows::default() };
        for (id, left, field) in of {
            rows.add(id, Some(Duration::from_millis(*left)), json!([field]));
        }
        rows
    }

    #[test]
    fn only_changed_rows_are_sent() {
        let former = rows(1000, &[("a", 9000, "x"), ("b", 9000, "x"), ("c", 9000, "x")]);
        let current = rows(2000, &[("a", 8000, "x"), ("b", 8000, "y"), ("d", 8000, "x")]);

        let sent = current.since(&former).unwrap();

        let expected = json!({
            "at": 2000,
            "whole": false,
            "rows": [["b", 10_000, ["y"]], ["d", 10_000, ["x"]]],
            "gone": ["c"],
        });
        assert_eq!(serde_json::from_str::<Value>(&sent).unwrap(), expected);
        assert_eq!(current.since(&current), None);
    }

    #[test]
    fn browsers_share_the_whole_text() {
        let rows = rows(1000, &[("a", 9000, "x")]);

        assert_eq!(rows.whole().as_ptr(), rows.whole().as_ptr());
    }

    #[test]
    fn deadline_changes_by_heartbeats_only() {
        let mut rows_now = rows(1000, &[("a", 9000, "x"), ("b", 300, "x")]);

        // Each read is late by a little, and the deadline of `b` moves by less than its heartbeats.
        for read in 1..10 {
            let at = 1000 + read * 100;
            let next = rows(at, &[("a", 10_000 - at + read % 3 * 50, "x"), ("b", 400, "x")]);
            rows_now = next.steadied_by(&rows_now);
        }

        assert_eq!(rows_now.by_id["a"].deadline, Some(10_000));
        assert!(rows_now.by_id["b"].deadline.unwrap().abs_diff(2300) < JITTER);
    }
}
