//! The events of `exporter`: orders from a file, and the file in which they arrive.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{FencingToken, InvalidInput};
use lease_scheduler::export::{Event, Limits, Put, Record, Sink};
use lease_scheduler::{ServiceError, ServiceErrorKind};

/// Reads one event per line from `file`, or orders of our own where none is given.
///
/// # Errors
///
/// Where `file` cannot be read, has no events in it, or has a line that is none.
pub fn read(file: Option<&Path>) -> Result<Vec<Event>, InvalidInput> {
    let (name, text) = match file {
        // Part of the program, so that it runs wherever it is started.
        None => ("orders.ndjson".to_owned(), include_str!("orders.ndjson").to_owned()),
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|error| {
                InvalidInput::new(format!("{} cannot be read: {error}", file.display()))
            })?;
            (file.display().to_string(), text)
        }
    };
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let event = |(number, line): (u32, &str)| {
        Event::from_line(format!("line-{number}").parse()?, line)
            .map_err(|error| InvalidInput::new(format!("{name}, line {number}: {error}")))
    };
    let events = lines.map(event).collect::<Result<Vec<_>, _>>()?;
    if events.is_empty() {
        return Err(InvalidInput::new(format!("{name} has no events in it")));
    }
    Ok(events)
}

/// Sends to a file, slowly enough for the eye to follow, and tells of it.
///
/// Each write is one line of the file: records are in it as they came.
pub struct FileSink {
    file: PathBuf,
    pace: Duration,
    tell: Arc<dyn Fn(String) + Send + Sync>,
}

impl FileSink {
    /// Appends to `file`, one request per `pace`, and tells each by `tell`.
    pub fn new(file: PathBuf, pace: Duration, tell: Arc<dyn Fn(String) + Send + Sync>) -> Self {
        Self { file, pace, tell }
    }
}

impl fmt::Debug for FileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSink").field("file", &self.file).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for FileSink {
    fn limits(&self) -> Limits {
        // Small, so that there is something to see.
        let limits = Limits::KINESIS.with_events_per_record(5);
        let limits = limits.and_then(|limits| limits.with_records_per_batch(3));
        limits.unwrap_or(Limits::KINESIS)
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        let count: usize = records.iter().map(|record| record.ids().count()).sum();
        let data: Vec<u8> = records.iter().flat_map(Record::data).copied().collect();
        let append = || -> std::io::Result<()> {
            let mut file =
                std::fs::OpenOptions::new().create(true).append(true).open(&self.file)?;
            file.write_all(&data)
        };
        append()
            .map_err(|error| ServiceError::new("sink", ServiceErrorKind::Unavailable, error))?;
        // Between what has arrived and what is known to have.
        (self.tell)(format!("token {token}  sends {count} events"));
        tokio::time::sleep(self.pace).await;
        Ok(vec![Put::Taken; records.len()])
    }
}

/// What came of holding what arrived against what was appended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrivals {
    /// Different events that were appended and arrived.
    pub arrived: usize,
    /// Events that were appended and did not arrive.
    pub missing: usize,
    /// How often one arrived again.
    pub again: usize,
    /// Lines that nobody appended.
    pub foreign: usize,
}

/// Holds the lines of `file` against `events`, which are all different.
///
/// # Errors
///
/// Where `file` cannot be read.
pub fn compare(events: &[Event], file: &Path) -> std::io::Result<Arrivals> {
    let mut counts: BTreeMap<&str, usize> = events.iter().map(|it| (it.line(), 0)).collect();
    let mut arrivals = Arrivals::default();
    let text = std::fs::read_to_string(file)?;
    for line in text.lines() {
        match counts.get_mut(line) {
            Some(count) => *count += 1,
            None => arrivals.foreign += 1,
        }
    }
    arrivals.arrived = counts.values().filter(|count| **count > 0).count();
    arrivals.missing = counts.len() - arrivals.arrived;
    arrivals.again = counts.values().map(|count| count.saturating_sub(1)).sum();
    Ok(arrivals)
}
