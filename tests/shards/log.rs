//! The log of the events of all record processors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_kinesis::{
    Batch, Checkpointer, Outcome, ProcessorError, RecordNumber, RecordProcessor, Shard,
    ShardContext, ShardId,
};
use tokio::time::sleep;

use lease_test_servers::stream::Put;

#[derive(Clone, Default)]
pub(crate) struct Log {
    worker: &'static str,
    events: Arc<Mutex<Vec<Event>>>,
}

#[derive(Clone, Debug)]
struct Event {
    at: Instant,
    reader: Reader,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reader {
    shard: ShardId,
    token: FencingToken,
    worker: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Begun,
    Record { number: RecordNumber, partition_key: Arc<str>, text: String },
    LeaseLost,
    ShardEnded,
    ShutDown,
}

impl Log {
    pub(crate) fn of(&self, worker: &'static str) -> Self {
        Self { worker, events: Arc::clone(&self.events) }
    }

    pub(crate) fn distinct(&self) -> usize {
        self.readers_by_record().len()
    }

    pub(crate) fn is_right(&self, put: &Put, shards: &[Shard]) {
        self.is_complete_and_in_order(put);
        self.has_no_child_before_its_parents(shards);
        self.has_no_earlier_reader_after_a_later();
        self.has_nothing_twice_after_an_orderly_end();
    }

    /// A worker that is cut off may deliver records again after an orderly end.
    pub(crate) fn is_right_amid_faults(&self, put: &Put, shards: &[Shard]) {
        self.is_complete_and_in_order(put);
        self.has_no_child_before_its_parents(shards);
        self.has_no_earlier_reader_after_a_later();
    }

    /// The longest time between two records of one shard, while a producer puts records into all shards.
    pub(crate) fn longest_pause(&self) -> Duration {
        let (mut last, mut longest) = (BTreeMap::new(), Duration::ZERO);
        for Event { at, reader, what } in self.events() {
            if matches!(what, What::Record { .. }) {
                let before = last.insert(reader.shard, at);
                longest = longest.max(before.map_or(Duration::ZERO, |before| at - before));
            }
        }
        longest
    }

    /// Checks that each record was processed. First deliveries of a partition key must be in the
    /// put order.
    fn is_complete_and_in_order(&self, put: &Put) {
        let mut worked: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in self.events() {
            if let What::Record { partition_key, text, .. } = event.what {
                let texts = worked.entry(partition_key.as_ref().into()).or_default();
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
        for (key, count) in put {
            let all: Vec<_> = (0..*count).map(|number| number.to_string()).collect();
            assert_eq!(worked.get(key), Some(&all), "records of {key}\n{self}");
        }
    }

    fn has_no_child_before_its_parents(&self, shards: &[Shard]) {
        let mut read = BTreeSet::new();
        for event in self.events() {
            let shard = &event.reader.shard;
            match event.what {
                What::ShardEnded => drop(read.insert(shard.clone())),
                What::Begun => {
                    let shard = shards.iter().find(|listed| listed.id == *shard).unwrap();
                    let early = shard.parents.iter().find(|parent| !read.contains(*parent));
                    assert_eq!(early, None, "{} began before this parent ended\n{self}", shard.id);
                }
                What::Record { .. } | What::LeaseLost | What::ShutDown => (),
            }
        }
    }

    fn has_no_earlier_reader_after_a_later(&self) {
        let mut last = BTreeMap::new();
        for Event { reader, what, .. } in self.events() {
            if matches!(what, What::Begun | What::Record { .. }) {
                let before = last.insert(reader.shard.clone(), reader.token);
                assert!(before <= Some(reader.token), "{reader:?} after {before:?}\n{self}");
            }
        }
    }

    /// Only a reader that was killed or lost its lease may leave records to be repeated.
    fn has_nothing_twice_after_an_orderly_end(&self) {
        let in_order = |event: &Event| matches!(event.what, What::ShutDown | What::ShardEnded);
        let events = self.events().into_iter();
        let orderly: BTreeSet<_> = events.filter(in_order).map(|event| event.reader).collect();
        for (record, mut readers) in self.readers_by_record() {
            readers.pop();
            for reader in readers {
                assert!(!orderly.contains(&reader), "{record:?} again after {reader:?}\n{self}");
            }
        }
    }

    fn readers_by_record(&self) -> BTreeMap<(ShardId, RecordNumber), Vec<Reader>> {
        let mut records: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for Event { reader, what, .. } in self.events() {
            if let What::Record { number, .. } = what {
                records.entry((reader.shard.clone(), number)).or_default().push(reader);
            }
        }
        records
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut records = 0;
        for Event { reader: Reader { shard, token, worker }, what, .. } in self.events() {
            if matches!(what, What::Record { .. }) {
                records += 1;
                continue;
            }
            writeln!(f, "after {records:5} records: {worker} {shard} {token}: {what:?}")?;
        }
        Ok(())
    }
}

/// Logs events, pauses briefly, and checkpoints every other batch. At its stop, checkpoints the
/// rest.
pub(crate) struct Noting {
    log: Log,
    reader: Reader,
    batches: u32,
}

impl Noting {
    pub(crate) fn new(log: Log, shard: &ShardContext) -> Self {
        let worker = log.worker;
        let token = shard.token.unwrap();
        let reader = Reader { shard: shard.shard.clone(), token, worker };
        Self { log, reader, batches: 0 }
    }

    fn note(&self, what: What) {
        let event = Event { at: now(), reader: self.reader.clone(), what };
        self.log.events.lock().unwrap().push(event);
    }
}

#[async_trait]
impl RecordProcessor for Noting {
    async fn initialize(&mut self, _shard: &ShardContext) -> Result<(), ProcessorError> {
        self.note(What::Begun);
        Ok(())
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if batch.attempt > 0 {
            // The last attempt logged the records, and failed at its checkpoint.
            return checkpointer.checkpoint().await.into();
        }
        for record in &batch.records {
            self.note(What::Record {
                number: record.number.clone(),
                partition_key: Arc::clone(&record.partition_key),
                text: String::from_utf8_lossy(&record.data).into_owned(),
            });
        }
        sleep(Duration::from_millis(20)).await;
        self.batches += 1;
        if self.batches.is_multiple_of(2) {
            return Outcome::Continue;
        }
        checkpointer.checkpoint().await.into()
    }

    async fn lease_lost(&mut self) {
        self.note(What::LeaseLost);
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.note(What::ShardEnded);
        checkpointer.checkpoint().await?;
        Ok(())
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        self.note(What::ShutDown);
        checkpointer.checkpoint().await?;
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement; no lease depends on it")]
fn now() -> Instant {
    Instant::now()
}
