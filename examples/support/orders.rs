//! The events of `exporter`: orders from a file, a sink that appends to a file, and a comparison.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind::NotFound;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{FencingToken, InvalidInput};
use lease_export::{DeadLetters, Event, Limits, Put, Record, Sink, Unsendable};
use lease_export::{ServiceError, ServiceErrorKind};

use crate::sentence;

/// The contents of a file of events.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Orders {
    /// The events, in order.
    pub events: Vec<Event>,
    /// One error per line that is not an event, with the line's text.
    pub refused: Vec<InvalidInput>,
}

/// Reads one event per line from `file`, or the built-in orders if `file` is `None`. A bad line
/// does not affect the other lines.
///
/// # Errors
///
/// Fails if `file` cannot be read, or has no events.
pub fn read(file: Option<&Path>) -> Result<Orders, InvalidInput> {
    let (name, bytes) = match file {
        // Compiled in, so that the example runs from any folder.
        None => ("orders.ndjson".to_owned(), include_bytes!("../data/orders.ndjson").to_vec()),
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
        ([], []) => Err(InvalidInput::new(format!("{name} has no events"))),
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

/// Appends to a file, slowly enough to read along, and prints each request. The file has one event
/// per line, in the order of arrival.
pub struct FileSink {
    file: PathBuf,
    pace: Duration,
    print: Arc<dyn Fn(String) + Send + Sync>,
}

impl FileSink {
    /// Appends one request per `pace` to `file`, and prints each request by `print`.
    pub fn new(file: PathBuf, pace: Duration, print: Arc<dyn Fn(String) + Send + Sync>) -> Self {
        Self { file, pace, print }
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
        // The limits are small, so that the example makes several requests.
        let limits = Limits::KINESIS.with_events_per_record(5);
        let limits = limits.and_then(|limits| limits.with_records_per_batch(3));
        limits.unwrap_or(Limits::KINESIS)
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        let count: usize = records.iter().map(|record| record.ids().count()).sum();
        let data: Vec<u8> = records.iter().flat_map(Record::data).copied().collect();
        append(&self.file, &data)
            .map_err(|error| ServiceError::new("sink", ServiceErrorKind::Unavailable, error))?;
        // An exporter that is killed here has sent events that are still in the buffer.
        (self.print)(format!("token {token}  sends {count} events"));
        tokio::time::sleep(self.pace).await;
        Ok(vec![Put::Taken; records.len()])
    }
}

/// Appends the events that the sink never accepts to a file, and prints each event.
pub struct FileDeadLetters {
    file: PathBuf,
    print: Arc<dyn Fn(String) + Send + Sync>,
}

impl FileDeadLetters {
    /// Appends dead letters to `file`, and prints each event by `print`.
    pub fn new(file: PathBuf, print: Arc<dyn Fn(String) + Send + Sync>) -> Self {
        Self { file, print }
    }
}

impl fmt::Debug for FileDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDeadLetters").field("file", &self.file).finish_non_exhaustive()
    }
}

#[async_trait]
impl DeadLetters for FileDeadLetters {
    async fn dead_letter(&self, event: &Event, why: &Unsendable) -> Result<(), ServiceError> {
        append(&self.file, format!("{}\n", event.line()).as_bytes()).map_err(|error| {
            ServiceError::new("dead letters", ServiceErrorKind::Unavailable, error)
        })?;
        let (id, why, file) = (event.id(), sentence(why), self.file.display());
        (self.print)(format!("{id} is not sent: {why}: moved to {file}"));
        Ok(())
    }
}

fn append(file: &Path, data: &[u8]) -> std::io::Result<()> {
    std::fs::OpenOptions::new().create(true).append(true).open(file)?.write_all(data)
}

/// The result of comparing the sink's file with the appended events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrivals {
    /// The number of events that arrived.
    pub arrived: usize,
    /// The number of events that are too large for a record.
    pub too_large: usize,
    /// The number of events that neither arrived nor became dead letters.
    pub missing: usize,
    /// The number of repeated arrivals.
    pub repeated: usize,
    /// The number of lines that are not an appended event.
    pub foreign: usize,
}

/// Compares the lines of `file` and of `too_large` with `events`. Equal events must arrive as often
/// as they were appended.
///
/// # Errors
///
/// Fails if one of the files exists but cannot be read.
pub fn compare(events: &[Event], file: &Path, too_large: &Path) -> std::io::Result<Arrivals> {
    let mut expected: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events {
        *expected.entry(event.line()).or_default() += 1;
    }
    let mut arrivals = Arrivals::default();
    for line in lines(too_large)?.lines() {
        // After a crash, the same event may be dead-lettered twice.
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
        arrivals.repeated += count - first;
        *expected -= first;
    }
    arrivals.missing = expected.into_values().sum();
    Ok(arrivals)
}

fn lines(file: &Path) -> std::io::Result<String> {
    match std::fs::read_to_string(file) {
        Err(error) if error.kind() == NotFound => Ok(String::new()),
        read => read,
    }
}
