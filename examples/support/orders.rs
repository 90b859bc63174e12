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
use lease_scheduler::export::{DeadLetters, Event, Limits, Put, Record, Sink, Unsendable};
use lease_scheduler::{ServiceError, ServiceErrorKind};

use crate::sentence;

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
    let (name, bytes) = match file {
        // Part of the program, so that it runs wherever it is started.
        None => ("orders.ndjson".to_owned(), include_bytes!("orders.ndjson").to_vec()),
        Some(file) => {
            let bytes = std::fs::read(file).map_err(|error| {
                InvalidInput::new(format!("{} cannot be read: {error}", file.display()))
            })?;
            (file.display().to_string(), bytes)
        }
    };
    let mut orders = Orders::default();
    for (number, line) in (1_u32..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match event(number, line) {
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

fn event(number: u32, line: &[u8]) -> Result<Event, InvalidInput> {
    let Ok(text) = std::str::from_utf8(line) else {
        let text = String::from_utf8_lossy(line);
        return Err(InvalidInput::new(format!("line {number} is not UTF-8: {text:?}")));
    };
    let text = text.strip_suffix('\r').unwrap_or(text);
    Event::from_line(format!("line-{number}").parse()?, text)
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

/// Keeps events that the sink will never take in a file, for somebody to look at, and tells of each.
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
    async fn bury(&self, event: &Event, why: &Unsendable) -> Result<(), ServiceError> {
        append(&self.file, format!("{}\n", event.line()).as_bytes()).map_err(|error| {
            ServiceError::new("dead letters", ServiceErrorKind::Unavailable, error)
        })?;
        let (id, why, file) = (event.id(), sentence(why), self.file.display());
        (self.tell)(format!("{id} is not sent: {why}: it is in {file}"));
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
    /// Events that were appended and arrived.
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

/// Holds the lines of `file`, and those of `too_large`, against `events`. Of equal events, as many
/// have to arrive as there are.
///
/// # Errors
///
/// Where one of the files is there, but cannot be read.
pub fn compare(events: &[Event], file: &Path, too_large: &Path) -> std::io::Result<Arrivals> {
    let mut expected: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events {
        *expected.entry(event.line()).or_default() += 1;
    }
    let mut arrivals = Arrivals::default();
    for line in lines(too_large)?.lines() {
        // A crash may have buried it twice.
        arrivals.too_large += expected.remove(line).unwrap_or(0);
    }
    let mut arrived: BTreeMap<&str, usize> = BTreeMap::new();
    let text = lines(file)?;
    for line in text.lines() {
        *arrived.entry(line).or_default() += 1;
    }
    for (line, count) in arrived {
        let Some(expected) = expected.get_mut(line) else {
            arrivals.foreign += count;
            continue;
        };
        let first = count.min(*expected);
        arrivals.arrived += first;
        arrivals.again += count - first;
        *expected -= first;
    }
    arrivals.missing = expected.into_values().sum();
    Ok(arrivals)
}

/// A file that is not there has no lines: nothing arrived in it.
fn lines(file: &Path) -> std::io::Result<String> {
    match std::fs::read_to_string(file) {
        Err(error) if error.kind() == NotFound => Ok(String::new()),
        read => read,
    }
}
