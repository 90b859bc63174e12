//! The events of `exporter`: orders from a file, and the file in which they arrive.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind::NotFound;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{FencingToken, InvalidInput};
use lease_scheduler::export::{DeadLetters, Event, Limits, Put, Record, Sink};
use lease_scheduler::{ServiceError, ServiceErrorKind};

/// What a file of events has in it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Orders {
    /// Its events, in order.
    pub events: Vec<Event>,
    /// What is wrong with each line that is none, with its text.
    pub refused: Vec<InvalidInput>,
}

/// Reads one event per line from `file`, or orders of our own where none is given. A line that is no
/// event does not keep back the others.
///
/// # Errors
///
/// Where `file` cannot be read, or has no events in it.
pub fn read(file: Option<&Path>) -> Result<Orders, InvalidInput> {
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
    let lines = (1_u32..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let mut orders = Orders::default();
    for (number, line) in lines {
        match Event::from_line(format!("line-{number}").parse()?, line) {
            Ok(event) => orders.events.push(event),
            Err(error) => orders.refused.push(InvalidInput::new(format!("{name}: {error}"))),
        }
    }
    match (orders.events.as_slice(), orders.refused.as_slice()) {
        ([], []) => Err(InvalidInput::new(format!("{name} has no events in it"))),
        ([], [first, ..]) => Err(InvalidInput::new(format!("no line is an event: {first}"))),
        _ => Ok(orders),
    }
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
        append(&self.file, &data)
            .map_err(|error| ServiceError::new("sink", ServiceErrorKind::Unavailable, error))?;
        // Between what has arrived and what is known to have.
        (self.tell)(format!("token {token}  sends {count} events"));
        tokio::time::sleep(self.pace).await;
        Ok(vec![Put::Taken; records.len()])
    }
}

/// Keeps events that fit into no record in a file, for somebody to look at, and tells of each.
pub struct FileDeadLetters {
    file: PathBuf,
    tell: Arc<dyn Fn(String) + Send + Sync>,
}

impl FileDeadLetters {
    /// Appends to `file`, and tells each by `tell`.
    pub fn new(file: PathBuf, tell: Arc<dyn Fn(String) + Send + Sync>) -> Self {
        Self { file, tell }
    }
}

impl fmt::Debug for FileDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDeadLetters").field("file", &self.file).finish_non_exhaustive()
    }
}

#[async_trait]
impl DeadLetters for FileDeadLetters {
    async fn bury(&self, event: &Event) -> Result<(), ServiceError> {
        append(&self.file, format!("{}\n", event.line()).as_bytes()).map_err(|error| {
            ServiceError::new("dead letters", ServiceErrorKind::Unavailable, error)
        })?;
        let (bytes, file) = (event.line().len(), self.file.display());
        (self.tell)(format!(
            "{} has {bytes} bytes, more than a record takes: it is in {file}",
            event.id()
        ));
        Ok(())
    }
}

fn append(file: &Path, data: &[u8]) -> std::io::Result<()> {
    std::fs::OpenOptions::new().create(true).append(true).open(file)?.write_all(data)
}

/// What came of holding what arrived against what was appended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrivals {
    /// Different events that were appended and arrived.
    pub arrived: usize,
    /// Events that were appended and fit into no record.
    pub too_large: usize,
    /// Events that were appended, and are neither here nor there.
    pub missing: usize,
    /// How often one arrived again.
    pub again: usize,
    /// Lines that nobody appended.
    pub foreign: usize,
}

/// Holds the lines of `file`, and those of `too_large`, against `events`, which are all different.
///
/// # Errors
///
/// Where one of the files is there, but cannot be read.
pub fn compare(events: &[Event], file: &Path, too_large: &Path) -> std::io::Result<Arrivals> {
    let mut counts: BTreeMap<&str, usize> = events.iter().map(|it| (it.line(), 0)).collect();
    let mut arrivals = Arrivals::default();
    for line in lines(too_large)?.lines() {
        // A crash may have buried it twice.
        arrivals.too_large += usize::from(counts.remove(line).is_some());
    }
    for line in lines(file)?.lines() {
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

/// A file that is not there has no lines: nothing arrived in it.
fn lines(file: &Path) -> std::io::Result<String> {
    match std::fs::read_to_string(file) {
        Err(error) if error.kind() == NotFound => Ok(String::new()),
        read => read,
    }
}
